"""Handing work over to the agents of a team, and the roles they have."""
