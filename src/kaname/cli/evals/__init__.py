"""`kaname eval`: evaluate an agent, list and compare evaluations, add cases."""
