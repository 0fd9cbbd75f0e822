"""OpenAI chat completions: the agents as models.

Tools that the agent runs are not shown as calls, because a client would run them again. A question is a message of the
assistant, and the next message of the user answers it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from time import time
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ...core.errors import ConfigError, ModelError
from ...core.events import Asked
from ...core.values import plain_text
from ...run.input import as_turn
from ..encoding import Json
from ..forms import caller_of, read_body, refuse_malformed
from ..language import in_language
from ..problems import RATE_LIMITED, status_of
from ..runs import user_input, user_of
from ..service import Service
from ..stream import Stream, Streams, event
from ..users import Caller
from .chat_answers import ChatAnswer, counts_as_answer, find_answer
from .conversation import ServedRun, headers_of_failure
from .transcript import INTERRUPTED, Kind, Transcript

_REFUSED = ("tools", "functions", "audio", "web_search_options")  # options that an agent would ignore
_FINISHED = {"max_steps": "length", "budget": "length", "deadline": "length", "blocked": "content_filter"}
_DONE = b"data: [DONE]\n\n"


class Chat:
    """`/v1/chat/completions` and `/v1/models`."""

    def __init__(self, service: Service, streams: Streams) -> None:
        self._service, self._streams = service, streams

    async def models(self, request: Request) -> Response:
        caller_of(request)
        return Json({"object": "list", "data": [_model(name) for name in self._service.agents]})

    async def model(self, request: Request) -> Response:
        caller_of(request)
        return Json(_model(self._service.agent(request.path_params["name"]).name))

    async def complete(self, request: Request) -> Response:
        caller, asked = caller_of(request, "talk"), await read_body(request, dict[str, Any])
        agent = self._service.agent(model_of(asked))
        with refuse_malformed():
            user = user_of(caller, asked.get("user") if caller.is_admin else None)
            messages = as_turn(user_input(_messages(asked)))
            with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        run, after = agent.run(messages, user_id=user, by=caller.name), None
        found = await find_answer(self._service, agent, user, messages)
        if found is not None and counts_as_answer(found, caller):
            if found.unclear:
                return self._ask_again(caller, found, ChatWriter(found.card.run_id, agent.name, with_usage), asked)
            run, after = await self._service.resume(found.card, found.answer, caller), found.card.seq
        conversation = ServedRun(self._service, self._streams, caller, run)
        await conversation.begin(request, after, streamed=bool(asked.get("stream")))
        writer = ChatWriter(run.run_id, agent.name, with_usage, acted=after is not None)
        if asked.get("stream"):
            return await conversation.stream(writer)
        await conversation.write_all(request, writer)
        told = {"x-run-id": quote(run.run_id)}
        if writer.problem is None:
            return Json(writer.whole(), 200, told)
        failure = await conversation.failure() or ModelError(INTERRUPTED)
        again = headers_of_failure(failure, harmless=not writer.acted)
        return Json(writer.whole(), status_of(failure), {**again, **told})

    def _ask_again(self, caller: Caller, found: ChatAnswer, writer: ChatWriter, asked: dict[str, Any]) -> Response:
        """Return the question once more, because the answer was not clear. The run keeps waiting."""
        question, writer.language = found.question, caller.language
        told = writer.begin() + writer.ask(question, found.unclear) + writer.end()
        headers = {"x-run-id": quote(found.card.run_id)}
        if not asked.get("stream"):
            return Json(writer.whole(), 200, headers)

        async def once() -> AsyncGenerator[bytes, None]:
            yield told

        return Stream(self._streams, caller, once(), headers=headers)


def model_of(asked: dict[str, Any]) -> str:
    """Return the name of the agent that the request asks for."""
    name = asked.get("model")
    if not isinstance(name, str) or not name:
        raise ConfigError.of("serve.model", "model must be the name of an agent; GET /v1/models lists them")
    return name.removeprefix("kaname/")


def _messages(asked: dict[str, Any]) -> list[Any]:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError.of("serve.messages", "messages must be a list that ends with the user's message")
    for name in _REFUSED:
        if asked.get(name):
            raise unsupported_error(name)
    if asked.get("n") not in (None, 1):
        raise unsupported_error("n")
    if (asked.get("response_format") or {}).get("type", "text") != "text":
        raise unsupported_error("response_format")
    return [_rename_developer(message) for message in messages]


def unsupported_error(name: str) -> ConfigError:
    return ConfigError.of(
        "serve.unsupported", "{name} is not supported: the agent has its own tools and output format", name=name
    )


def _rename_developer(message: Any) -> Any:
    """Return the message with the role `system` instead of `developer`, which means the same."""
    if isinstance(message, dict) and message.get("role") == "developer":
        return {**message, "role": "system"}
    return message


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "kaname"}


def as_error(message: str, kind: str) -> dict[str, Any]:
    """Return an error in the form of OpenAI. A rate limit of the provider gets the codes of OpenAI, so that clients know it."""
    if kind == RATE_LIMITED:
        return {"message": message, "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    return {"message": message, "type": kind, "param": None, "code": None}


class ChatWriter(Transcript):
    """Write text deltas, and calls of tools as comments. An empty line separates two messages of a run."""

    def __init__(self, run_id: str, agent: str, with_usage: bool = False, *, acted: bool = False) -> None:
        super().__init__(run_id)
        self._id, self._agent, self._with_usage, self.acted = f"chatcmpl-{run_id}", agent, with_usage, acted
        self._created, self._last, self._parted = int(time()), "", False
        self._questions: list[dict[str, Any]] = []

    def begin(self) -> bytes:
        return self._piece({"role": "assistant", "content": ""})

    def write(self, kind: Kind, text: str) -> bytes:
        if kind != "text":
            return b""
        parted, self._parted = self._parted, False
        return self._piece({"content": f"\n\n{text}" if parted else text})

    def finish_message(self, text: str) -> bytes:
        self._last, self._parted = text, True
        return b""

    def call(self, data: dict[str, Any]) -> bytes:
        return b": a tool is called\n\n"  # a comment keeps the connection alive; a name could hold anything

    def write_stop(self) -> bytes:
        self._last = plain_text(self.output or self._last)
        return b""

    def ask(self, question: Asked, why: str = "") -> bytes:
        """Write a question, after the reason `why` it is asked once more. Only the first of several: an answer is for one."""
        self.ended = "waiting"
        told = {"key": question.key, "prompt": in_language(question.prompt, self.language), "options": list(question.options)}
        self._questions.append({**told, "in_doubt": True} if question.in_doubt else told)
        if len(self._questions) > 1:
            return b""
        in_words = self.question_in_words(question)
        return self.write_message(f"{in_language(why, self.language)}\n\n{in_words}" if why else in_words)

    @property
    def problem(self) -> dict[str, Any] | None:
        """Return the error if the run failed or was interrupted, otherwise None."""
        if not self.ended:
            return as_error(INTERRUPTED, "interrupted")
        return as_error(self.detail, self.error) if self.ended == "failed" else None

    def end(self) -> bytes:
        if self.problem is not None:
            return event({"error": self.problem}) + _DONE
        last = self._piece({}, self._finish, self._kaname_fields())
        used = {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage}
        return last + (event(used) if self._with_usage else b"") + _DONE

    def whole(self) -> dict[str, Any]:
        """Return the response without a stream. It holds the last message."""
        if self.problem is not None:
            return {"error": self.problem, "kaname": self._kaname_fields()}
        message = {"role": "assistant", "content": self._last, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage, "kaname": self._kaname_fields()}

    @property
    def _finish(self) -> str:
        return _FINISHED.get(self.ended, "stop")

    @property
    def _usage(self) -> dict[str, int]:
        used = self.used
        return {"prompt_tokens": used.input, "completion_tokens": used.output, "total_tokens": used.total}

    def _kaname_fields(self) -> dict[str, Any]:
        return {"run_id": self.run_id, "status": self.ended, "questions": self._questions}

    def _piece(self, delta: dict[str, Any], finish: str | None = None, told: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        more = {"usage": None} if self._with_usage else {}
        return event({**self._head("chat.completion.chunk"), "choices": [choice], **more, **({"kaname": told} if told else {})})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._agent, "system_fingerprint": None}
