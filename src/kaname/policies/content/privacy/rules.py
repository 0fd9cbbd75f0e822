"""The rules of a `Privacy` policy: what is done with each kind of data, in each direction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ....core.errors import ConfigError, nearest
from ....core.notices import notice
from .kinds import KINDS

Treatment = Literal["mask", "pseudonymise", "remove", "block", "warn", "allow"]
Direction = Literal["input", "results", "output", "arguments"]
TREATMENTS: tuple[Treatment, ...] = ("mask", "pseudonymise", "remove", "block", "warn", "allow")
DIRECTIONS: tuple[Direction, ...] = ("input", "results", "output", "arguments")
DEFAULT: Mapping[str, Treatment] = {"*": "pseudonymise", "api_key": "mask"}


class PrivacyRules:
    """What is done with data of a kind in a direction. `*` stands for the kinds that are not named."""

    def __init__(self, given: Mapping[str, Any], *, further: tuple[str, ...], any_kind: bool) -> None:
        self._by_direction: dict[str, dict[str, Treatment]] = {direction: {} for direction in DIRECTIONS}
        known = ("*", *KINDS, *further)
        for kind, rule in given.items():
            if kind not in known and not any_kind:
                message = notice("privacy.kind", "there is no kind of personal data {name!r}", name=kind)
                raise ConfigError(message + nearest(str(kind), known))
            for direction, treatment in _by_direction(kind, rule).items():
                self._by_direction[direction][kind] = treatment

    def treatment(self, direction: Direction, kind: str) -> Treatment:
        rules = self._by_direction[direction]
        return rules.get(kind) or rules.get("*", "allow")

    def has(self, direction: Direction, *treatments: Treatment) -> bool:
        """Return True if a rule of the direction has one of the treatments; without any, if it does not allow everything."""
        used = set(self._by_direction[direction].values())
        return bool(used & set(treatments)) if treatments else bool(used - {"allow"})

    def hides(self, kind: str) -> bool:
        """Return True if the model gets a pseudonym for data of the kind, from the user or from a tool."""
        return "pseudonymise" in (self.treatment("input", kind), self.treatment("results", kind))

    def concerns(self, kind: str, *directions: Direction) -> bool:
        return any(self.treatment(direction, kind) != "allow" for direction in directions or DIRECTIONS)


def _by_direction(kind: str, rule: Any) -> dict[Direction, Treatment]:
    """Return the treatment for each direction. A pseudonym alone is for the model: the user and tools get the value."""
    if isinstance(rule, str):
        shown = DIRECTIONS if rule != "pseudonymise" else DIRECTIONS[:2]
        rule = dict.fromkeys(shown, rule)
    if not isinstance(rule, Mapping):
        raise _treatment_error(kind, rule)
    for direction, treatment in rule.items():
        if direction not in DIRECTIONS:
            message = notice("privacy.direction", "there is no direction {name!r} (kind {kind!r})", name=direction, kind=kind)
            raise ConfigError(message + nearest(str(direction), DIRECTIONS))
        if treatment not in TREATMENTS:
            raise _treatment_error(kind, treatment)
    return {direction: rule.get(direction, "allow") for direction in DIRECTIONS}


def _treatment_error(kind: str, given: Any) -> ConfigError:
    return ConfigError.of(
        "privacy.treatment",
        "{kind!r} must be one of {treatments}, or a mapping of directions to these, not {given!r}",
        kind=kind,
        treatments=", ".join(TREATMENTS),
        given=given,
    )
