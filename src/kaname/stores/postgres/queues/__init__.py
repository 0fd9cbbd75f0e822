"""Queues of runs in PostgreSQL: kaname's own table, or the tables of Procrastinate."""
