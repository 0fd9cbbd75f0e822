"""Processes in which files from outside are decoded: with limits of time and memory, and without a network."""
