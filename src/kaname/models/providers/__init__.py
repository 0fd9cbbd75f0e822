"""Adapters: one file for each wire protocol."""
