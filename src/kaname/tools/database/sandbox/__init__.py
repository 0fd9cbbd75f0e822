"""The process in which statements run."""
