"""Design E: plan, execute, monitor, evaluate, and plan again."""
