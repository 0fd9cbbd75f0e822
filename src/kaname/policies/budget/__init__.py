"""Budgets: accounts of money, tokens and calls, and the meter that keeps every call within them."""
