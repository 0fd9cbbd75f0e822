"""For people who extend it."""
