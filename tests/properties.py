"""How many examples a property test tries, and which of a list of parameters wait for the night."""

from typing import Any

import pytest
from hypothesis import settings


def tries(most: int, **more: Any) -> settings:
    """All of them where new ones are looked for (`--hypothesis-profile explore`); a twelfth where they are the same each time."""
    return settings(max_examples=most // 12 if settings.default.derandomize else most, **more)


def nightly(*values: Any) -> list[Any]:
    """Return parameters that only `scripts/test --all` tries. A value that is a tuple stands for several parameters."""
    return [pytest.param(*(one if isinstance(one, tuple) else (one,)), marks=pytest.mark.nightly) for one in values]
