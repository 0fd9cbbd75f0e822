"""Replace personal data in JSON values: in texts, in numbers, and in values whose key says what they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ....core.errors import ConfigError, nearest
from ....core.notices import notice
from ..guardrails.patterns import in_both_forms
from .kinds import KINDS, DataForm, built_in
from .scan import Detector, Found, find

Rewrite = Callable[[str, list[Found]], str]
Find = Callable[[str], list[Found]]


def rewrite_value(value: Any, find_in: Find, rewrite: Rewrite, keys: tuple[str, ...] = ()) -> Any:
    """Return a JSON value with its texts and numbers rewritten; the same object if nothing changes.

    A text is looked at together with its key and the key above it: in `{"passport": {"number": "TK1234567"}}` they say what
    the value is.
    """
    if isinstance(value, str):
        return rewrite_text(value, find_in, rewrite, " ".join(keys))
    if isinstance(value, Mapping):
        return _rewrite_mapping(value, find_in, rewrite, keys)
    if isinstance(value, list | tuple):
        listed = [rewrite_value(one, find_in, rewrite, keys) for one in value]
        return value if all(map(_is, listed, value)) else listed
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        changed = rewrite_text(text, find_in, rewrite, " ".join(keys))
        return value if changed == text else changed
    return value


def _rewrite_mapping(value: Mapping[Any, Any], find_in: Find, rewrite: Rewrite, keys: tuple[str, ...]) -> Mapping[Any, Any]:
    made = {
        rewrite_text(str(name), find_in, rewrite): rewrite_value(inner, find_in, rewrite, (*keys[-1:], str(name)))
        for name, inner in value.items()
    }
    same = all(name in value and made[name] is value[name] for name in made) and len(made) == len(value)
    return value if same else made


def rewrite_text(text: str, find_in: Find, rewrite: Rewrite, key: str = "") -> str:
    """Return a text rewritten. `key` names the text: it is looked at, and not changed."""
    before = f"{key.replace('_', ' ')}: " if key else ""
    found = find_in(before + text) if len(text) > 2 else []
    ours = [Found(max(0, one.start - len(before)), one.end - len(before), one.kind) for one in found if one.end > len(before)]
    return rewrite(text, ours) if ours else text


def replace_found(text: str, found: Iterable[Found], by: Callable[[str, str], str]) -> str:
    """Return a text with the data that was found in it replaced by `by(kind, data)`."""
    made, last = [], 0
    for one in found:
        made += [text[last : one.start], by(one.kind, text[one.start : one.end])]
        last = one.end
    return "".join([*made, text[last:]])


def mask(kind: str, data: str = "") -> str:
    return f"[{kind}]"


def sanitize_data(
    data: Any, pii_patterns: Mapping[str, str] | Sequence[str] | None = None, *, detectors: Sequence[Detector] = ()
) -> Any:
    """Return data with the personal data in it replaced: `"a@b.example"` becomes `"[email]"`.

    Args:
        data: A text, or any JSON value. It is not changed.
        pii_patterns: What to look for: names of kinds (`["email", "card"]`), or regular expressions by their name
            (`{"employee": r"E[0-9]{6}"}`). By default all kinds that kaname knows.
        detectors: Functions that find further data, such as `find_names`.

    Raises:
        ConfigError: A name or a pattern cannot be used.
    """
    forms = built_in() if pii_patterns is None else forms_of(pii_patterns)
    return rewrite_value(data, lambda text: find(text, forms, detectors), lambda text, found: replace_found(text, found, mask))


def forms_of(given: Mapping[str, str] | Sequence[str]) -> tuple[DataForm, ...]:
    """Return the forms of the kinds that are named, or of patterns by their name."""
    if isinstance(given, Mapping):
        return tuple([DataForm(str(name), form.compiled) for name, one in given.items() for form in in_both_forms(one)])
    for name in given:
        if name not in KINDS:
            message = notice("privacy.kind", "there is no kind of personal data {name!r}", name=name)
            raise ConfigError(message + nearest(str(name), KINDS))
    return tuple([form for form in built_in() if form.kind in given])


def _is(one: Any, other: Any) -> bool:
    return one is other
