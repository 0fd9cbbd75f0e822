"""The worker process in which statements run."""
