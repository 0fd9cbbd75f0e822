"""Flow rules: text from outside cannot make the agent act."""
