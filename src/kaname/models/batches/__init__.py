"""Batch APIs of providers: many requests in one file, answered within a day, at a lower price."""
