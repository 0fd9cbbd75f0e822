"""Journals: the stores of facts."""
