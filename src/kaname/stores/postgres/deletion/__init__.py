"""Delete runs, and erase what belongs to a user."""
