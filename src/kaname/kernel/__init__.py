"""The engine: ports, the loop, and the two places where policies wrap an agent's actions.

Imports the standard library only.
"""
