"""Checks of what goes in and what comes out."""
