"""Read text that models write: JSON, by one rule."""
