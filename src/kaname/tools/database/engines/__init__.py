"""SQLite, DuckDB, PostgreSQL."""
