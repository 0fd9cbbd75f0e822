"""What was recorded: runs, sessions, figures."""
