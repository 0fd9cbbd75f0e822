"""What a provider's refusal means: one small tree of errors, whoever sent it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from time import time
from typing import Any, NamedTuple

from ..core.errors import (
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
from ..core.language import say

_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|limit|size)|maximum context|too many (input )?tokens|prompt is too long", re.I
)
_FILTERED = re.compile(r"content.?(filter|policy|management)|safety system|responsible ai", re.I)
_OVERLOADED = ("overloaded", "unavailable", "internal", "server_error", "api_error")
_LONGEST = 600
_SECRET = 6  # characters; a server of one's own is often given a key such as "none"


class Who(NamedTuple):
    """Which model it was, and the key that no message may show."""

    provider: str
    model: str
    secret: str = ""


def from_status(status: int, headers: Mapping[str, str], body: bytes, who: Who) -> ModelError:
    """The error for an answer that is not 200."""
    text = body.decode("utf-8", "replace")
    if 300 <= status < 400:  # not followed: the key would go with the request
        place = headers.get("location", "")
        moved = say(
            f"redirected to {place!r}: set base_url to where the API is",
            f"{place!r} へ転送されました。base_url を直してください",
        )
        return failure(RequestRefused, moved, status, who)
    if text.lstrip()[:1] == "<":
        page = say("a web page instead of JSON", "JSON ではなく Web ページ")
        return failure(_kind(status, ""), page, status, who, _retry_after(headers))
    try:
        message = said(json.loads(text))
    except ValueError:
        message = text.strip() or say("no explanation", "説明なし")
    return failure(_kind(status, message), message, status, who, _retry_after(headers))


def from_event(error: Any, who: Who) -> ModelError:
    """The error for one that came inside a stream that had begun well."""
    message = said({"error": error})
    told = f"{error.get('type', '')} {error.get('code', '')}".lower() if isinstance(error, Mapping) else ""
    if "rate" in told or "429" in told:
        kind: type[ModelError] = RateLimited
    elif any(word in told for word in _OVERLOADED) or not told.strip():
        kind = ModelUnavailable
    else:
        kind = _kind(400, message)
    return failure(kind, message, 200, who)


def garbled(what: str, who: Who) -> ModelError:
    return failure(ReplyGarbled, what, 200, who)


def said(answer: Any) -> str:
    """The message inside, however the provider wraps it."""
    error = answer.get("error", answer) if isinstance(answer, Mapping) else answer
    if isinstance(error, Mapping):
        error = error.get("message") or error.get("detail") or error
    return error if isinstance(error, str) else json.dumps(error, ensure_ascii=False)


def _kind(status: int, message: str) -> type[ModelError]:
    if status in (401, 403):
        return ModelDenied
    if status == 404:
        return ModelNotFound
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(message)):
        return ContextTooLong
    if status == 429:
        return RateLimited
    if status >= 500 or status == 408:
        return ModelUnavailable
    return ContentFiltered if _FILTERED.search(message) else RequestRefused


_ADVICE: dict[type[ModelError], tuple[str, str]] = {
    ModelDenied: ("check the API key and what it may be used for", "API キーとその権限を確認してください"),
    ModelNotFound: ("check the model's name and base_url", "モデル名と base_url を確認してください"),
    ContextTooLong: (
        "shorten the conversation, or use a model that reads more",
        "会話を短くするか、より長く読めるモデルを使ってください",
    ),
    RateLimited: ("wait, or raise the limit with the provider", "時間をおくか、上限の引き上げを依頼してください"),
    ModelUnavailable: ("try again later", "しばらくしてから再試行してください"),
    ContentFiltered: ("rephrase the request", "依頼の表現を変えてください"),
}


def failure(kind: type[ModelError], text: str, status: int, who: Who, after: float | None = None) -> ModelError:
    """An error that says what happened, with which model, and what can be done. The key is never in it."""
    text = (text.replace(who.secret, "***") if len(who.secret) >= _SECRET else text)[:_LONGEST]
    advice = _ADVICE.get(kind)
    hint = f" ({say(*advice)})" if advice else ""
    number = f"{status}: " if status not in (0, 200) else ""
    message = f"{who.provider}/{who.model}: {number}{text}{hint}"
    return kind(message, provider=who.provider, model=who.model, status=status, retry_after=after)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    value = headers.get("retry-after-ms")
    if value and value.isdigit():
        return int(value) / 1000
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time())
    except (ValueError, TypeError):
        return None
