"""Read what others write, by one rule each: JSON from models."""
