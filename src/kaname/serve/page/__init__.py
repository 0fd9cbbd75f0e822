"""The page: its files, and the routes that only the page uses."""
