"""Design D, MONONO: the agent by subclass, its adapters and guards, and its managers."""
