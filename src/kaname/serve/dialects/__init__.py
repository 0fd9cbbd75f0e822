"""Other protocols, one file each: read its requests, write a run's chunks in its form."""
