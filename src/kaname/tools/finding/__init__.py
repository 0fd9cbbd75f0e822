"""Many tools: the model is told their names, looks up those that it needs, and calls them by name."""
