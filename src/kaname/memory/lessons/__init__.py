"""Learn from recorded runs: what went well, what failed and why, and lessons that are measured before they are used."""
