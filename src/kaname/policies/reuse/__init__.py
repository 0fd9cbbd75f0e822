"""Does it have to be computed again? Caches, batches, and the cache of the provider."""
