"""The engine: ports, the loop, and the two joints where policies wrap what an agent does. Standard library only."""
