"""The audit log: who signed in, approved, read, exported and erased, in a file whose entries are chained by hashes."""
