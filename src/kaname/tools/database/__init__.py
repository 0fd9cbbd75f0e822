"""Read-only SQL, behind three walls."""
