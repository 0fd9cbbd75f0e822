"""Senses: read, hear, speak, draw and watch, on this machine or through a provider."""
