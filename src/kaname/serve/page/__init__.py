"""The page: what a browser is given, and what only it asks for."""
