"""What the dialects share: a run and its reader, the words that were shown, answers to questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Protocol
from urllib.parse import quote

from starlette.requests import Request

from ...api.attach import batches_of
from ...api.run import Run
from ...core.chunks import Chunk, chunks_of
from ...core.errors import AgentError, RateLimited, RunNotFound
from ...core.events import Asked
from ...core.notices import notice
from ...core.people.answers import NO, YES, is_yes_or_no
from ...core.values import plain_text
from ...kernel.channel import Reader
from ..admin_only import chunks_for
from ..encoding import Part
from ..forms import caller_of
from ..problems import headers_of, status_of
from ..service import OnDisconnect, Service
from ..stream import Stream, Streams, noticing_departure
from ..users import Caller

_SILENCE = 1.0  # seconds for which the head of an answer is held back
_RETRYING = 60.0  # the same, while the model's provider is asked again
_SHORT = 3  # parts: the first, the last, and something between them
SEPARATOR = ":"  # in an id that names a run and one of its questions


class Writer(Protocol):
    """A pure function from chunks to bytes, with what it has to remember of the chunks before. `end` also ends a stream whose
    run goes on, because the server ends: it says so."""

    def begin(self) -> bytes: ...
    def take(self, chunk: Chunk) -> bytes: ...
    def end(self) -> bytes: ...


class Ahead:
    """The parts of a stream, of which the first can be looked at before they are sent.

    `retrying`: whether the model has failed, and is asked again."""

    def __init__(self, written: AsyncGenerator[Part, None], retrying: Callable[[], bool] = lambda: False) -> None:
        self._written, self._held, self._retrying = written, list[Part](), retrying
        self._next: asyncio.Task[Part | None] | None = None  # one that is being waited for

    async def is_short(self) -> bool:
        """Return True if there is nothing between the first part and the last. A run that is silent for a while is not waited
        for, unless it retries: its client is to know that it has begun."""
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


class Conversation:
    """One request: the run that was begun for it, and its reader. The run waits for this reader, who misses no word.

    If the reader leaves before the end, `Service.left` decides whether the run is stopped. `on_disconnect`: what the request
    itself says about that.
    """

    def __init__(
        self, service: Service, streams: Streams, caller: Caller, run: Run[Any], on_disconnect: OnDisconnect | None = None
    ) -> None:
        self.run, self._service, self._streams, self._caller = run, service, streams, caller
        self._left = partial(service.left, run.run_id, on_disconnect)
        self._reader: Reader = run.subscribe(0, wait_for_me=True)
        self._retrying = False
        self.before: list[Chunk] = []  # of a run that goes on: what it has called and asked so far, and the answers

    async def begin(self, after: int | None = None, *, streamed: bool = True) -> None:
        """Start it. `after`: of a run that goes on, only the facts after that number are told."""
        if streamed:
            self._streams.check(self._caller)
        if after is not None:
            self._reader.close()
            self._reader = self.run.subscribe(after, wait_for_me=True)
            self.before = await called_and_asked(self._service, self.run.run_id, after)
        await self._service.begin(self.run)

    async def stream(self, writer: Writer, headers: dict[str, str] | None = None) -> Stream:
        """Return the stream of the run. Raise `RateLimited` if the run fails so before it has said anything: as long as nothing
        was sent, the answer can have that status."""
        told = {"x-run-id": quote(self.run.run_id), **(headers or {})}
        written = Ahead(self._written(writer), lambda: self._retrying)
        if await written.is_short() and isinstance(failure := await self.failure(), RateLimited):
            raise failure
        return Stream(self._streams, self._caller, written.parts(), closing=writer.end, left=self._left, headers=told)

    async def whole(self, request: Request, writer: Writer) -> None:
        """Let it take all there is, without a stream."""
        async with noticing_departure(request, self._left):
            async for _ in self._written(writer):
                pass

    async def failure(self) -> AgentError | None:
        """Return the error that a run which is over failed with."""
        try:
            await self.run
        except AgentError as problem:
            return problem
        return None

    async def _written(self, writer: Writer) -> AsyncGenerator[Part, None]:
        yield writer.begin()
        async for chunks in batches_of(self._reader):
            self._retrying = self._retrying or any(one.data.get("source") == "retry" for one in chunks)
            told = b"".join([writer.take(one) for one in chunks_for(chunks, self._caller) if is_own(one, self.run.run_id)])
            chunks.clear()  # nothing but the bytes is held while the client is waited for
            yield told
        for chunk in await self._still_asked():
            yield writer.take(chunk)
        yield writer.end()

    async def _still_asked(self) -> list[Chunk]:
        """The questions of before that are open, where only some were answered: they are told again."""
        if not self.before:
            return []
        try:
            questions = (await self._service.agent_result(self.run.run_id)).questions
        except RunNotFound:  # it is over, and was not to be stored
            return []
        return [chunk for chunk in self.before if is_question(chunk) and chunk.data["key"] in questions]


async def called_and_asked(service: Service, run_id: str, until: int) -> list[Chunk]:
    """The calls, questions and answers of a run up to a fact."""
    told: list[Chunk] = []
    async for fact in service.journal.read(run_id, 0):
        if fact.seq > until:
            break
        told += [one for one in chunks_of(fact) if one.type == "tool_call" or one.data.get("status") in ("waiting", "answered")]
    return told


def is_question(chunk: Chunk) -> bool:
    return chunk.type == "status" and chunk.data["status"] == "waiting"


def is_own(chunk: Chunk, run_id: str) -> bool:
    """Whether it is the run's own, and not one of a run inside it."""
    return chunk.data.get("run_id", run_id) == run_id  # type: ignore[no-any-return]


def headers_of_failure(problem: AgentError, *, harmless: bool) -> dict[str, str]:
    """Return when to try again, and whether a client's library may do so by itself: not if tools may have done something."""
    again = harmless and status_of(problem) == HTTPStatus.TOO_MANY_REQUESTS
    return headers_of(problem) if again else {**headers_of(problem), "x-should-retry": "false"}


INTERRUPTED = notice("serve.interrupted", "the run was interrupted here; it goes on, and can be followed by its id")


class Words:
    """The text of one message as it is shown: the deltas, then what is missing of the whole."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.any = False  # of any message

    def delta(self, text: str) -> str:
        self.shown.append(text)
        self.any = self.any or bool(text)
        return text

    def rest(self, whole: str) -> str:
        """What has to be added to the deltas, and the message is over. One that was changed after it was shown stays so."""
        before, self.shown = "".join(self.shown), []
        self.any = self.any or bool(whole)
        return whole[len(before) :] if whole.startswith(before) else ""


def last_words(chunk: Chunk, words: Words) -> str:
    """The answer of a run that ended without having said it, as a plan does."""
    output = chunk.data.get("output")
    return "" if words.any or output is None else plain_text(output)


def answer_for(asked: Asked, approved: bool, reason: str = "") -> Any:
    """Turn a protocol's approve or deny, with its free text, into an answer for the one reader of answers.

    A question without options is answered by the text. Where there is more to choose from than yes and no, an approval chooses
    the option that the text names; a denial never chooses.
    """
    if not asked.options:
        return reason or (YES if approved else NO)
    if approved and reason and not is_yes_or_no(asked.options):
        return reason
    return {"approved": approved, "reason": reason}


def wording(prompt: str, options: Sequence[str]) -> str:
    """Return a question with its options, for a protocol whose own form of a question shows no more than yes and no."""
    if not options or is_yes_or_no(options):
        return prompt
    return notice("serve.choose", "{content} Options: {options}.", content=prompt, options=", ".join(options))


async def asked_by(service: Service, request: Request, question_id: str) -> tuple[str, str, Asked | None]:
    """The run, the key and the question of an id `run:key`. Only who may answer gets so far."""
    run_id, _, key = question_id.partition(SEPARATOR)
    card = await service.card(run_id, caller_of(request, "approve"))
    result = await service.agent_result(card.run_id)
    return card.run_id, key, result.questions.get(key) if result.stop.kind == "waiting" else None
