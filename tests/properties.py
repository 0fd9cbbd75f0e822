"""How many examples a property test tries."""

from typing import Any

from hypothesis import settings


def tries(most: int, **more: Any) -> settings:
    """All of them where new ones are looked for (`--hypothesis-profile explore`); a third where they are the same each time."""
    return settings(max_examples=most // 3 if settings.default.derandomize else most, **more)
