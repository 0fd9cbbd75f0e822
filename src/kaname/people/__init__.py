"""The words of people to a run: messages, answers, and what earlier runs have said."""
