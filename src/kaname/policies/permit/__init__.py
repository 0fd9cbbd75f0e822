"""Permissions: which user, role and agent can use which tool, hand over to which agent, and read which data."""
