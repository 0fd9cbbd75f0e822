"""The arguments of a call: schema, check, repair."""
