"""Memory of an agent: the conversation in short, what was said long ago, and what holds for a user or a project."""
