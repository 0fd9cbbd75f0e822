"""Improve an agent: search for better texts with GEPA, and decide on cases that the search has not seen."""
