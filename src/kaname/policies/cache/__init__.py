"""Caches: a store of values with a size and an age, one computation for many callers, and the policy that uses both."""
