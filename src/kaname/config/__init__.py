"""Agents in a file: load it, check it, build what it says."""
