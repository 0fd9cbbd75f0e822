"""Exact arithmetic for a model."""
