"""The registry of features. Each is one function on the draft; `rng` is its own source of chance.

To add one, write a function with `@feature`. It must make sense with every other feature, and must declare in `draft.rules`
what the docs promise about it. Features are applied in the order of this file's imports, whichever are chosen.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from .draft import Draft

Feature = Callable[[Draft, random.Random], None]
FEATURES: dict[str, Feature] = {}


def feature(function: Feature) -> Feature:
    """Register a feature under the name of its function."""
    FEATURES[function.__name__] = function
    return function
