"""Talk to a run that is under way."""
