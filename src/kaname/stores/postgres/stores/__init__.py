"""Store what the database holds beside the facts: accounts of budgets, times by name, and media."""
