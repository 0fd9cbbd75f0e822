"""The HTTP client of the adapters, and what every server has in common."""
