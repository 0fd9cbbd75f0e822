"""Store what people leave in the journal's database: messages to runs, and approvals that last."""
