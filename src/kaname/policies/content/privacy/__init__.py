"""Find personal data and keys, and keep them from the model, the tools, the user or the record."""
