"""Several models for one agent: the next one when one fails, and load spread over equals."""
