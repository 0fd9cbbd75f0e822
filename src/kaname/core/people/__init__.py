"""Between a person and a run: the meaning of an answer, and how text is shown before a person decides."""
