"""Pacing: calls wait for their turn, so that the limits of providers, keys and this machine hold."""
