"""Retrieval over the user's documents."""
