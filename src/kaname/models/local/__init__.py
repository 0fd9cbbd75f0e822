"""Models on this machine: the weights, and the server that runs them."""
