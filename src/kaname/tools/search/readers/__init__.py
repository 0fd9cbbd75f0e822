"""Readers that turn files into blocks of text, one for each file format."""
