"""The classes that the five designs name: thin layers over `Agent`."""
