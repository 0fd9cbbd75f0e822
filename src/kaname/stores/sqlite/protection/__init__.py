"""Rows that are encrypted with the keys of users, rewritten in place, and erased."""
