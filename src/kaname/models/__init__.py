"""Who thinks."""
