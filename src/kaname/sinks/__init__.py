"""Who listens: sinks get every fact after it became durable, and every delta."""
