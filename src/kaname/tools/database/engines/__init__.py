"""The database engines: SQLite, DuckDB, PostgreSQL."""
