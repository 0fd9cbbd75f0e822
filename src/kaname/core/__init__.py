"""Vocabulary of kaname: plain data, and the fold over it. Imports the standard library only."""
