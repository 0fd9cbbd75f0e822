"""What happens when a call fails or takes too long, and what takes its place: retries, timeouts, fallbacks, equal tools."""
