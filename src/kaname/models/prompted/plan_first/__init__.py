"""Plan before the first call: a small model solves two steps that build on each other when it is asked for one at a time."""
