"""What may it say and see? Guardrails and privacy."""
