"""Readers of recorded runs. Users take turns, and reading ends when the client leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from ..core.events import Event
from ..core.turns import Places
from ..kernel.load import close_at_the_end
from ..kernel.ports import Journal
from .access.proxies import address_of
from .encoding import PIECE, Part, join_parts, size_of
from .forms import caller_of
from .stream import while_client_waits

_AT_ONCE, _OF_ONE_USER = 8, 2  # requests that read at the same time
_STRETCH = 50  # facts that a stream reads in one turn; fewer if they are large
Handler = Callable[[Request], Awaitable[Response]]


class Readers:
    """The requests that read runs. One user's are never more than a part of them, so that all others are answered meanwhile.

    Each may read a whole run into memory, and one thread reads for all of them: more at once would only need more memory.
    Sending the response is not counted.
    """

    def __init__(self) -> None:
        self._places = Places(_AT_ONCE, _OF_ONE_USER)

    def in_turn(self, handler: Handler) -> Handler:
        """Return the handler of an address that reads runs: each request waits for its turn."""

        @wraps(handler)
        async def wait_and_handle(request: Request) -> Response:
            async with while_client_waits(request), self._places.take(_whose(request)):
                return await handler(request)

        return wait_and_handle

    async def facts(
        self, journal: Journal, run_id: str, after: int, request: Request, write: Callable[[Event], Awaitable[list[Part]]]
    ) -> AsyncGenerator[Part, None]:
        """Yield what `write` makes of the recorded facts of a run after a number. A stream waits for its turn again and again.

        In one turn it reads little more than one part: the client may never read it.
        """
        async with close_at_the_end(journal.read(run_id, after)) as facts:
            goes_on = True
            while goes_on:
                async with self._places.take(_whose(request)):
                    parts, goes_on = await _read_stretch(facts, write)
                for part in parts:
                    yield part


async def _read_stretch(
    facts: AsyncIterator[Event], write: Callable[[Event], Awaitable[list[Part]]]
) -> tuple[list[Part], bool]:
    """Write the next facts. Return the parts, joined, and True if there may be more facts."""
    parts, count, size = list[Part](), 0, 0
    async for fact in facts:
        made = await write(fact)
        parts, count, size = parts + made, count + 1, size + sum(map(size_of, made))
        if count == _STRETCH or size >= PIECE:
            return join_parts(parts), True
    return join_parts(parts), False


def _whose(request: Request) -> str:
    """Return the user whose turn a request takes; for a caller without a name, the address that it came from."""
    name = caller_of(request).name
    return f"user {name}" if name else f"address {address_of(request.scope)}"
