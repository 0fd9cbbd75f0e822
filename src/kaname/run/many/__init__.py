"""One agent, many inputs: each is a run of its own, and all of them can be resumed."""
