"""Code that the dialects share: a run with its reader, the chunks of a run so far, and answers to questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from starlette.requests import Request

from ...core.chunks import Chunk, chunks_of
from ...core.errors import AgentError, ConfigError, RateLimited, RunNotFound
from ...core.events import Asked
from ...core.people.answers import is_yes_or_no, read_decision
from ...core.runs import RunInfo
from ...kernel.channel import Reader
from ...run.attach import batches_of
from ...run.run import Run
from ..encoding import Part
from ..forms import caller_of
from ..problems import chunks_for, headers_of, status_of
from ..service import OnDisconnect, Service
from ..stream import Stream, Streams, watch_departure
from ..users import Caller
from .transcript import SEPARATOR, Transcript, question_of

_SILENCE = 1.0  # seconds for which the headers of a response are held back
_RETRYING = 60.0  # the same, while the call of the model is retried
_SHORT = 3  # parts: the first, the last, and something between them


class PeekedStream:
    """The parts of a stream, of which the first can be inspected before they are sent.

    `retrying`: returns True if the model has failed and is called again.
    """

    def __init__(self, written: AsyncGenerator[Part, None], retrying: Callable[[], bool] = lambda: False) -> None:
        self._written, self._held, self._retrying = written, list[Part](), retrying
        self._next: asyncio.Task[Part | None] | None = None  # one that is being waited for

    async def is_short(self) -> bool:
        """Return True if there is nothing between the first part and the last.

        If the run is silent for a while, return False, so that the client gets the headers. A run that retries is waited for
        longer.
        """
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while len(self._held) < _SHORT:
            self._next = self._next or asyncio.ensure_future(anext(self._written, None))
            try:
                most = begun + (_RETRYING if self._retrying() else _SILENCE)
                done, _ = await asyncio.wait([self._next], timeout=max(0.0, most - loop.time()))
            except asyncio.CancelledError:
                self._next.cancel()
                raise
            if not done:
                return False
            part, self._next = self._next.result(), None
            if part is None:
                return True
            self._held += [part] if part else []
        return False

    async def parts(self) -> AsyncGenerator[Part, None]:
        try:
            for part in self._held:
                yield part
            self._held.clear()
            if self._next is not None:
                following, self._next = await self._next, None
                if following is not None:
                    yield following
            async for part in self._written:
                yield part
        finally:
            if self._next is not None:
                self._next.cancel()
                await asyncio.wait([self._next])
            await self._written.aclose()


class ServedRun:
    """The run of one request, and its reader. The run waits for this reader, so that it misses nothing.

    If the client leaves before the end, `Service.handle_departure` decides if the run is stopped. `on_disconnect`: what the
    request itself says about that.
    """

    def __init__(
        self, service: Service, streams: Streams, caller: Caller, run: Run[Any], on_disconnect: OnDisconnect | None = None
    ) -> None:
        self.run, self._service, self._streams, self._caller = run, service, streams, caller
        self._left = partial(service.handle_departure, run.run_id, on_disconnect)
        self._reader: Reader = run.subscribe(0, wait_for_me=True)
        self._retrying = False
        self.before: list[Chunk] = []  # for a resumed run: its calls, questions and answers so far

    async def begin(self, request: Request, after: int | None = None, *, streamed: bool = True) -> None:
        """Start the run. `after`: for a run that is resumed, write only the facts after that number."""
        if streamed:
            self._streams.check(self._caller)
        if after is not None:
            self._reader.close()
            self._reader = self.run.subscribe(after, wait_for_me=True)
            self.before = await called_and_asked(self._service, self.run.run_id, after)
        await self._service.begin(self.run, request if after is None else None)  # an answer counts once it is sent

    async def stream(self, writer: Transcript, headers: dict[str, str] | None = None) -> Stream:
        """Return the stream of the run.

        Raises:
            RateLimited: If the run fails with it before it has written anything: then the response can still have that status.
        """
        told = {"x-run-id": quote(self.run.run_id), **(headers or {})}
        writer.language = self._caller.language
        written = PeekedStream(self._write(writer), lambda: self._retrying)
        if await written.is_short() and isinstance(failure := await self.failure(), RateLimited):
            raise failure
        return Stream(self._streams, self._caller, written.parts(), closing=writer.end, left=self._left, headers=told)

    async def write_all(self, request: Request, writer: Transcript) -> None:
        """Have the writer take all chunks, for a response without a stream."""
        writer.language = self._caller.language
        async with watch_departure(request, self._left):
            async for _ in self._write(writer, streamed=False):
                pass

    async def failure(self) -> AgentError | None:
        """Return the error that the run failed with, or None."""
        try:
            await self.run
        except AgentError as problem:
            return problem
        return None

    async def _write(self, writer: Transcript, *, streamed: bool = True) -> AsyncGenerator[Part, None]:
        """Yield what the writer makes of the run. Without a stream, words that may still be withdrawn are not written."""
        yield writer.begin()
        async for chunks in batches_of(self._reader):
            chunks = chunks if streamed else [one for one in chunks if one.type != "delta"]
            self._retrying = self._retrying or any(one.data.get("source") == "retry" for one in chunks)
            told = b"".join([writer.take(one) for one in chunks_for(chunks, self._caller) if is_own(one, self.run.run_id)])
            chunks.clear()  # nothing but the bytes is held while the client is waited for
            yield told
            if writer.broken:
                self._left()
                yield writer.end()
                return
        for chunk in await self._open_questions():
            yield writer.take(chunk)
        yield writer.end()

    async def _open_questions(self) -> list[Chunk]:
        """Return the earlier questions that are still open, if only some were answered. They are written again."""
        if not self.before:
            return []
        try:
            questions = (await self._service.agent_result(self.run.run_id)).questions
        except RunNotFound:  # it is over, and was not to be stored
            return []
        return [chunk for chunk in self.before if is_question(chunk) and chunk.data["key"] in questions]


async def called_and_asked(service: Service, run_id: str, until: int) -> list[Chunk]:
    """Return the calls, questions and answers of a run up to a fact."""
    told: list[Chunk] = []
    async for fact in service.journal.read(run_id, 0):
        if fact.seq > until:
            break
        told += [one for one in chunks_of(fact) if one.type == "tool_call" or one.data.get("status") in ("waiting", "answered")]
    return told


def is_question(chunk: Chunk) -> bool:
    return chunk.type == "status" and chunk.data["status"] == "waiting"


def is_own(chunk: Chunk, run_id: str) -> bool:
    """Return True if the chunk belongs to the run itself, and not to a run inside it."""
    return chunk.data.get("run_id", run_id) == run_id  # type: ignore[no-any-return]


def headers_of_failure(problem: AgentError, *, harmless: bool) -> dict[str, str]:
    """Return headers that say when to retry, and whether a client library can retry by itself: not if tools may have had an
    effect."""
    again = harmless and status_of(problem) == HTTPStatus.TOO_MANY_REQUESTS
    return headers_of(problem) if again else {**headers_of(problem), "x-should-retry": "false"}


def answer_for(asked: Asked, approved: bool, reason: str = "") -> Any:
    """Turn the approval or denial of a protocol, with its free text, into an answer.

    A denial refuses, whatever is asked: its text is the reason, and never the answer. An approval of a question without options
    is answered by the text; without a text it is empty, and is not recorded. If there are other options than yes and no, an
    approval chooses the option that the text names.
    """
    if approved and not asked.options:
        return reason or None
    if approved and reason and not is_yes_or_no(asked.options):
        return reason
    return {"approved": approved, "reason": reason}


async def read_answers(
    service: Service, request: Request, given: Mapping[str, Any], read: Callable[[Asked, Any], Any]
) -> tuple[RunInfo, dict[str, Any]]:
    """Return the run, and its answers by their keys, for answers by the ids of questions (`run:key`).

    A question that is no longer open is read like the others: the same answer is passed over, another one is refused.

    Args:
        given: What the client sends, by the id of the question.
        read: Returns the answer for a question and what the client sends.

    Raises:
        HttpRefused: Without the role `approve`.
        RunNotFound: If there is no such run, or it is another user's.
        ConfigError: If none of the questions is open, or if they belong to several runs.
    """
    ids = [one.partition(SEPARATOR) for one in given]
    card = await service.card(ids[0][0] if ids else "", caller_of(request, "approve"))
    result = await service.agent_result(card.run_id)
    asked = dict(result.questions) if result.stop.kind == "waiting" else {}
    known = {**await _questions_so_far(service, card), **asked} if asked else {}
    keys = [key for _, _, key in ids]
    if not asked.keys() & {*keys} or {*keys} - known.keys() or len({run_id for run_id, _, _ in ids}) > 1:
        raise ConfigError.of("serve.no_question", "these questions are no longer open")
    answers = {key: read(known[key], one) for key, one in zip(keys, given.values(), strict=True)}
    had = result.state.answers
    return card, {key: one for key, one in answers.items() if key in asked or not _means_the_same(had.get(key), one)}


async def _questions_so_far(service: Service, card: RunInfo) -> dict[str, Asked]:
    """Return the questions that a run has asked by now, by their keys."""
    chunks = await called_and_asked(service, card.run_id, card.seq)
    return {one.data["key"]: question_of(one) for one in chunks if is_question(one)}


def _means_the_same(recorded: Any, answer: Any) -> bool:
    return bool(recorded == answer) or None is not read_decision(recorded) == read_decision(answer)
