"""The HTTP client of the adapters, and the code that all adapters share."""
