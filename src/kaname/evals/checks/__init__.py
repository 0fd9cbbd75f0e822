"""Checks: what must hold of an outcome."""
