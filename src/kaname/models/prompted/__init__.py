"""Tools for models without native tool calls."""
