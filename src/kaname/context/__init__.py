"""Context: the messages that the model sees."""
