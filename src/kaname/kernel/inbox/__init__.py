"""Messages to a run that is under way: where they wait, and when the run takes them in."""
