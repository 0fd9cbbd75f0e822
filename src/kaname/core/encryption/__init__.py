"""Encryption at rest: the keys, the opener of all SQLite files, and the key of each user."""
