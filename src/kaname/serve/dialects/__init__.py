"""Other protocols, one file each: read their requests, and write the chunks of a run in their form."""
