"""Runs that wait in a queue, and the workers that execute them."""
