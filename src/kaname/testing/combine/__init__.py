"""Try an agent in random combinations, and hold what it does against a reference monitor.

`combine(agent)` tries an agent of yours. kaname's own generator of random agents is in `tests/doors`.
"""

from .trial import MOVES, BrokenCase, CombineReport, combine

__all__ = ["MOVES", "BrokenCase", "CombineReport", "combine"]
