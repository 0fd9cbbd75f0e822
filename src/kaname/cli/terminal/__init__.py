"""The terminal itself: screen, prompts, chunks, signals."""
