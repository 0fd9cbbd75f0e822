"""Evaluations: measure an agent on cases, compare two versions of it, and know whether the difference is real.

evaluation = Evaluation("shop", [Case("How much is tea?", contains="300", calls=["price"])])
report = await evaluation.run(agent, repeat=3)

Public names are in `__init__.pyi`, and imported when first used.
"""

from ..lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__)
