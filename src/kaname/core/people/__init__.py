"""Between a person and a run: what an answer means, and how text is shown before somebody decides."""
