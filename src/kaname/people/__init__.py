"""What people say to a run: their words, their answers, and what earlier runs have said to them."""
