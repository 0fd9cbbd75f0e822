"""Recorded runs: lists, sessions, metrics."""
