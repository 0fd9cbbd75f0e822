"""Strategies: they decide the next step."""
