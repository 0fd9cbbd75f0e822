"""Workflows: task graphs that people write, in YAML or in Python."""
