"""What it can do."""
