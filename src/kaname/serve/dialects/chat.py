"""OpenAI chat completions: the agents as models. Tools that the agent runs are not shown as calls: a client would run them
again. A question is the assistant's message, and what the user says next answers it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from time import time
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from ...api.input import as_turn
from ...core.chunks import Chunk
from ...core.errors import ConfigError, ModelError
from ...core.notices import joined, notice
from ...core.values import plain_text
from ..encoding import Json
from ..forms import caller_of, fitting, read
from ..problems import RATE_LIMITED, status_of
from ..runs import user_input, user_of
from ..service import Service
from ..stream import Stream, Streams, event
from ..users import Caller
from .chat_answers import Answer, concerns, find_answer, resume_with
from .conversation import INTERRUPTED, Conversation, Words, headers_of_failure, last_words, wording

_REFUSED = ("tools", "functions", "audio", "web_search_options")  # what a client would wait for in vain
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
        caller, asked = caller_of(request, "talk"), await read(request, dict[str, Any])
        agent = self._service.agent(model_of(asked))
        with fitting():
            user = user_of(caller, asked.get("user") if caller.is_admin else None)
            messages = as_turn(user_input(_messages(asked)))
            with_usage = bool((asked.get("stream_options") or {}).get("include_usage"))
        run, after = agent.run(messages, user_id=user), None
        found = await find_answer(self._service, agent, user, messages)
        if found is not None and concerns(found, caller):
            if found.unclear:
                return self._asked_again(caller, found, ChatWriter(found.card.run_id, agent.name, with_usage), asked)
            run, after = await resume_with(self._service, agent, found, caller.name), found.card.seq
        conversation = Conversation(self._service, self._streams, caller, run)
        await conversation.begin(after, streamed=bool(asked.get("stream")))
        writer = ChatWriter(run.run_id, agent.name, with_usage, acted=after is not None)
        if asked.get("stream"):
            return await conversation.stream(writer)
        await conversation.whole(request, writer)
        told = {"x-run-id": quote(run.run_id)}
        if writer.problem is None:
            return Json(writer.whole(), 200, told)
        failure = await conversation.failure() or ModelError(INTERRUPTED)
        again = headers_of_failure(failure, harmless=not writer.acted)
        return Json(writer.whole(), status_of(failure), {**again, **told})

    def _asked_again(self, caller: Caller, found: Answer, writer: ChatWriter, asked: dict[str, Any]) -> Response:
        """Ask once more what was not answered clearly. The run waits as before."""
        question = found.question
        told = writer.begin() + writer.ask(question.key, question.prompt, question.options, found.unclear) + writer.end()
        headers = {"x-run-id": quote(found.card.run_id)}
        if not asked.get("stream"):
            return Json(writer.whole(), 200, headers)

        async def once() -> AsyncGenerator[bytes, None]:
            yield told

        return Stream(self._streams, caller, once(), headers=headers)


def model_of(asked: dict[str, Any]) -> str:
    """Which agent is meant: by its name."""
    name = asked.get("model")
    if not isinstance(name, str) or not name:
        raise ConfigError(notice("serve.model", "model is the name of an agent; GET /v1/models lists them"))
    return name.removeprefix("kaname/")


def _messages(asked: dict[str, Any]) -> list[Any]:
    messages = asked.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ConfigError(notice("serve.messages", "messages is a list that ends with the user's message"))
    for name in _REFUSED:
        if asked.get(name):
            raise unsupported(name)
    if asked.get("n") not in (None, 1):
        raise unsupported("n")
    if (asked.get("response_format") or {}).get("type", "text") != "text":
        raise unsupported("response_format")
    return [_plain(message) for message in messages]


def unsupported(name: str) -> ConfigError:
    return ConfigError(
        notice("serve.unsupported", "{name} is not supported: an agent has its own tools and its own form of answer", name=name)
    )


def _plain(message: Any) -> Any:
    """`developer` is another name for `system`."""
    if isinstance(message, dict) and message.get("role") == "developer":
        return {**message, "role": "system"}
    return message


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "kaname"}


def as_error(message: str, kind: str) -> dict[str, Any]:
    """Return an error as OpenAI's clients read it: with their own words for a limit of the provider, else with ours."""
    if kind == RATE_LIMITED:
        return {"message": message, "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
    return {"message": message, "type": kind, "param": None, "code": None}


class ChatWriter:
    """Text deltas, and tool work as comments. Two messages of a run are parted by an empty line."""

    def __init__(self, run_id: str, agent: str, with_usage: bool = False, *, acted: bool = False) -> None:
        self._id, self._agent, self._run_id, self._with_usage = f"chatcmpl-{run_id}", agent, run_id, with_usage
        self._created, self._words, self._last = int(time()), Words(), ""
        self._usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        self._finish, self._status = "stop", ""
        self._questions: list[dict[str, Any]] = []
        self.problem: dict[str, Any] | None = None
        self.acted = acted  # a tool was called

    def begin(self) -> bytes:
        return self._piece({"role": "assistant", "content": ""})

    def take(self, chunk: Chunk) -> bytes:
        match chunk.type:
            case "delta":
                return self._text(self._words.delta(chunk.data["content"]), first=len(self._words.shown) == 1)
            case "message":
                first = not self._words.shown
                self._last = chunk.data["content"]
                return self._text(self._words.rest(self._last), first=first)
            case "tool_call":
                self.acted = True
                return b": a tool is called\n\n"  # a comment keeps the connection alive; a name could hold anything
            case "usage":
                for name in self._usage:
                    self._usage[name] += chunk.data[name]
            case "error":
                self._status, self.problem = "failed", as_error(chunk.data["message"], chunk.data["type"])
            case "status":
                return self._status_chunk(chunk)
        return b""

    def _status_chunk(self, chunk: Chunk) -> bytes:
        if chunk.data["status"] == "stopped":
            self._status = chunk.data["kind"]
            self._finish = _FINISHED.get(self._status, "stop")
            said, self._last = last_words(chunk, self._words), plain_text(chunk.data["output"] or self._last)
            return self._text(said, first=True)
        if chunk.data["status"] == "waiting":
            return self.ask(chunk.data["key"], chunk.data["content"], chunk.data["options"])
        return b""

    def ask(self, key: str, prompt: str, options: Sequence[str], why: str = "") -> bytes:
        """Show a question, after `why` it is asked once more. Of several only the first is shown: an answer is for one."""
        self._status = "waiting"
        self._questions.append({"key": key, "prompt": prompt, "options": list(options)})
        if len(self._questions) > 1:
            return b""
        self._last = joined("\n\n", [why, wording(prompt, options)] if why else [wording(prompt, options)])
        return self._text(self._last, first=True)

    def _text(self, text: str, *, first: bool) -> bytes:
        if not text:
            return b""
        parted = first and self._begun
        self._begun = True
        return self._piece({"content": f"\n\n{text}" if parted else text})

    _begun = False

    def end(self) -> bytes:
        if not self._status:
            self.problem = as_error(INTERRUPTED, "interrupted")
        if self.problem is not None:
            return event({"error": self.problem}) + _DONE
        last = self._piece({}, self._finish, self._told())
        used = {**self._head("chat.completion.chunk"), "choices": [], "usage": self._usage}
        return last + (event(used) if self._with_usage else b"") + _DONE

    def whole(self) -> dict[str, Any]:
        """The answer without a stream: the last message is the answer."""
        if self.problem is not None:
            return {"error": self.problem, "kaname": self._told()}
        message = {"role": "assistant", "content": self._last, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return {**self._head("chat.completion"), "choices": [choice], "usage": self._usage, "kaname": self._told()}

    def _told(self) -> dict[str, Any]:
        return {"run_id": self._run_id, "status": self._status, "questions": self._questions}

    def _piece(self, delta: dict[str, Any], finish: str | None = None, told: dict[str, Any] | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        more = {"usage": None} if self._with_usage else {}
        return event({**self._head("chat.completion.chunk"), "choices": [choice], **more, **({"kaname": told} if told else {})})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._agent, "system_fingerprint": None}
