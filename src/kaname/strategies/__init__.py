"""Who decides next."""
