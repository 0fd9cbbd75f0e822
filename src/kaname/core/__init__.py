"""The words: pure data and the fold over it. Standard library only."""
