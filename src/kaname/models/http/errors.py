"""Map a provider's refusal (status, headers, body) to one small tree of errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from logging import NullHandler, getLogger
from typing import Any, NamedTuple

from ...core.durations import retry_after
from ...core.errors import (
    ContentFiltered,
    ContextTooLong,
    ModelDenied,
    ModelError,
    ModelNotFound,
    ModelUnavailable,
    RateLimited,
    ReplyGarbled,
    RequestRefused,
)
from ...core.messages import NOTHING
from ...core.notices import Notice, join_notices, notice
from ...core.reading.lazy_regex import lazy_regex

_TOO_LONG = lazy_regex(
    r"context.{0,20}(length|window|limit|size)|maximum (context|prompt|model)|too many (input )?tokens|prompt is too long"
    r"|token count.{0,40}exceeds|request_too_large",
    re.I,
)
_PROOF = lazy_regex(r"auth|key|token|secret|cookie|pass|credential|session", re.I)
_FILTERED = lazy_regex(r"content.?(filter|policy|management)|safety system|responsible ai", re.I)
_MODELS_FAULT = lazy_regex(r"tool_use_failed|json_validate_failed|output_parse_failed|malformed_function_call", re.I)
_LONGEST = 600
_REQUEST_IDS, _LONGEST_ID = ("x-request-id", "request-id", "apim-request-id"), 100
_SECRET = 6  # characters; a server of one's own is often given a key such as "none"
_LONG_SECRET, _MIDDLE = 12, 8  # of a key that long no beginning or end, and no longer part, is shown
_WORD = lazy_regex(r"[\w-]{4,}")
log = getLogger("kaname.models")
log.addHandler(NullHandler())  # a program that has set up no log is not written to


class Who(NamedTuple):
    """The model that was asked, and the secrets that no message may show."""

    provider: str
    model: str
    secrets: tuple[str, ...] = ()
    request_id: str = ""  # the provider's, once it has answered

    def __repr__(self) -> str:
        return f"Who({self.provider}/{self.model})"

    def answered(self, headers: Mapping[str, str]) -> Who:
        """Return the same with the id under which the provider knows the request, if it says so."""
        for name in _REQUEST_IDS:
            if name in headers:
                return self._replace(request_id=headers[name][:_LONGEST_ID])
        return self

    def mask(self, text: str) -> str:
        """Replace the keys in a text, and what can be recognised as a part of one, such as `sk-pr…****abcd`."""
        known = [secret for secret in self.secrets if len(secret) >= _SECRET]
        for secret in known:
            text = text.replace(secret, "***")
        long = [secret for secret in known if len(secret) >= _LONG_SECRET]
        return _WORD.sub(lambda match: "***" if _is_part(match[0], long) else match[0], text) if long else text


def _is_part(word: str, secrets: list[str]) -> bool:
    return any(one.startswith(word) or one.endswith(word) or (len(word) >= _MIDDLE and word in one) for one in secrets)


def secrets_in(headers: Mapping[str, str]) -> list[str]:
    """Return the values of headers that authenticate."""
    found = [value for name, value in headers.items() if _PROOF.search(name)]
    return [secret for value in found for secret in (value, *re.split(r"[ ;=]+", value)) if len(secret) >= _SECRET]


def from_status(status: int, headers: Mapping[str, str], body: bytes, who: Who) -> ModelError:
    """Return the error for an answer that is not 200."""
    text, after = body.decode("utf-8", "replace"), retry_after(headers)
    who = who.answered(headers)
    if 300 <= status < 400:  # not followed: the key would go with the request
        place = headers.get("location", "")
        moved = notice("model.redirected", "the server redirects to {place!r}: set base_url to the API's address", place=place)
        return failure(RequestRefused, moved, status, who, inside=True)
    if text.lstrip()[:1] == "<":
        page = notice("model.web_page", "the server returned a web page instead of JSON")
        return failure(_kind(status, ""), page, status, who, after)
    try:
        answer = json.loads(text)
        message, told = error_message(answer), _labels(answer)
    except (ValueError, RecursionError):
        message, told = text.strip() or notice("model.no_explanation", "no explanation"), ""
    return failure(_kind(status, f"{told} {message}"), message, status, who, after)


def from_event(error: Any, who: Who) -> ModelError:
    """Return the error for an error event inside a stream."""
    message, told = error_message({"error": error}), _labels(error)
    status = next((int(word) for word in told.split() if word.isascii() and word.isdecimal() and 400 <= int(word) < 600), 0)
    if not status:
        plain = re.sub(r"[^a-z0-9]", "", told)
        status = next((code for words, code in _NAMED if any(word in plain for word in words)), 503)
    return failure(_kind(status, f"{told} {message}"), message, 200, who)


_NAMED = (  # providers' names for a status; an unknown name counts as temporary
    (("ratelimit", "toomanyrequests"), 429),
    (("overloaded", "unavailable", "internal", "servererror", "apierror", "timeout", "connection", "gateway", "upstream"), 503),
    (("authentication", "permission", "apikey", "unauthorized"), 401),
    (("notfound",), 404),
    (("invalid", "badrequest", "unsupported", "toolarge", "length", "filter", "quota"), 400),
)


def _labels(answer: Any) -> str:
    """Return the names and codes that a provider adds to its message."""
    error = answer.get("error", answer) if isinstance(answer, Mapping) else None
    found = [error.get(label) for label in ("type", "code", "status")] if isinstance(error, Mapping) else []
    return " ".join([str(label).lower() for label in found if isinstance(label, str | int)])


def garbled_reply(what: str, who: Who) -> ModelError:
    return failure(ReplyGarbled, what, 200, who)


def error_message(answer: Any) -> str:
    """Return the message of an error, however the provider wraps it."""
    error = answer.get("error", answer) if isinstance(answer, Mapping) else answer
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or error
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def _kind(status: int, message: str) -> type[ModelError]:
    if status in (401, 402, 403) or "insufficient_quota" in message:
        return ModelDenied
    if status == 404:
        return ModelNotFound
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(message)):
        return ContextTooLong
    if status < 500 and _MODELS_FAULT.search(message):  # the request was fine, and what the model wrote was not
        return ReplyGarbled
    if status == 429:
        return RateLimited
    if status >= 500 or status == 408:
        return ModelUnavailable
    return ContentFiltered if _FILTERED.search(message) else RequestRefused


def failure(
    kind: type[ModelError], text: str, status: int, who: Who, after: float | None = None, *, inside: bool = False
) -> ModelError:
    """Return an error that tells everybody the kind of failure, the model, and the remedy.

    A notice is in kaname's words. A plain text is the provider's: it goes to the log and into `said`, without keys. So does a
    notice with `inside`, because it names internal addresses.
    """
    ours = isinstance(text, Notice) and not inside
    said = "" if ours else who.mask(text)[:_LONGEST]
    number = f"{status}: " if status not in (0, 200) else ""
    words = (f"{who.provider}/{who.model}: {number}", text if ours else kind.words, kind.advice)
    asked = notice("model.request_id", " (request {id})", id=who.request_id) if who.request_id else ""
    message = join_notices("", (*words, asked))
    if said:
        log.warning("%s/%s: %s%s: %s", who.provider, who.model, number, kind.__name__, " ".join(said.split()))
    made = kind(message, provider=who.provider, model=who.model, status=status, retry_after=after, said=said)
    made.request_id = who.request_id
    if number:  # the provider charges for answers, not for errors
        made.usage = NOTHING
    return made
