"""Trace context (W3C `traceparent`): the place of a run in a trace that a caller began, and the place of its own calls.

The ids of a run's spans follow from its own id, so that another process, after a crash, gives them the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .reading.lazy_regex import lazy_regex

_FORM = lazy_regex(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")

current: ContextVar[str] = ContextVar("traceparent", default="")
"""What calls from here on belong to. A server sets it from a request; a run that is traced sets it to its own span."""


def parse_traceparent(traceparent: str) -> tuple[str, str] | None:
    """Return the ids of the trace and of the span. Return None if the text is not a valid `traceparent`."""
    match = _FORM.fullmatch(traceparent.strip().lower())
    if match is None or traceparent.startswith("ff") or not int(match[1], 16) or not int(match[2], 16):
        return None
    return match[1], match[2]


def trace_id(root: str) -> str:
    return _hash("kaname trace", root)[:32]


def span_id(*names: str | int) -> str:
    return _hash("kaname span", *map(str, names))[:16]


def _hash(*names: str) -> str:
    from hashlib import sha256

    return sha256("\n".join(names).encode("utf-8", "surrogatepass")).hexdigest()


def of_run(run_id: str, trace: str) -> str:
    """Return the `traceparent` of everything that a run does. `trace`: the one with which it was started."""
    known = parse_traceparent(trace)
    return f"00-{known[0] if known else trace_id(root_of(run_id))}-{span_id(run_id)}-01"


@contextmanager
def within(run_id: str, trace: str) -> Iterator[None]:
    """Run the body inside the run's span."""
    before = current.get()
    current.set(of_run(run_id, trace))
    try:
        yield
    finally:
        current.set(before)


def root_of(run_id: str) -> str:
    """Return the run at the top. A child's id begins with its parent's."""
    return run_id.partition("/")[0]
