"""One run of an agent: the request for it, its opening, its task, its children, its result."""
