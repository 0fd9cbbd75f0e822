"""Results that are too long to be shown whole: what the model sees of them, and the tool that reads the rest."""
