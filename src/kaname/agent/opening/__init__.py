"""A run from the request for it to its first fact: new, resumed or forked."""
