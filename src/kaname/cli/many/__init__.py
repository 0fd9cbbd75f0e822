"""`kaname run --batch`: many tasks from a file."""
