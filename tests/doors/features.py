"""All features, in the order in which they are applied."""

from . import tools, policies, structure, moves  # isort: skip
from .registry import FEATURES

__all__ = ["FEATURES", "moves", "policies", "structure", "tools"]
