"""May it, and how."""
