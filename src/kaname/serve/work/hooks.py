"""Webhooks: `POST /hooks/NAME` queues a run. Requests are signed as Standard Webhooks says (standardwebhooks.com).

The signature covers the id of the delivery, the time and the body. The id is a part of the run's id, so that a delivery that
is repeated is one run. What the sender wrote is marked as text from outside (`Text.source`).
"""

from __future__ import annotations

import hmac
import json
import os
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ...agent.agent import Agent
from ...agent.work.submit import queue_of
from ...core.errors import ConfigError
from ...core.messages import Message, Text
from ...core.notices import notice
from ...core.values import plain_text
from ...workflows.configured import find_target
from ..encoding import Json
from ..problems import HttpRefused
from ..service import Service

_WINDOW = 300.0  # seconds that a signed time may differ from the clock
_LARGEST = 256_000  # bytes of a body
_SHORTEST = 16  # bytes of a secret
_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PLACE = re.compile(r"\{(body(?:\.[^{}.\s]+)*)\}")


class Hook:
    """A webhook of the configuration. Its secrets, separated by spaces, are in an environment variable."""

    def __init__(self, name: str, given: Mapping[str, Any], agents: Mapping[str, Agent[Any]]) -> None:
        how = dict(given)
        self.name, self.template, variable = name, how.pop("input", ""), how.pop("secret_env")
        self.source = f"webhook {name}"
        self.agent = find_target(agents, f"triggers.{name}", how.pop("agent", ""))
        self.how = how
        self._secrets = read_secrets(f"triggers.{name}", variable)

    def check(self, headers: Mapping[str, str], body: bytes, now: float) -> str:
        """Return the id of the delivery. Raises `HttpRefused` if the signature is wrong or its time is not now."""
        delivery, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        given = [one.encode() for one in headers.get("webhook-signature", "").split() if one.startswith("v1,")]
        wanted = [sign(secret, delivery, stamp, body).encode() for secret in self._secrets]
        if not any(hmac.compare_digest(one, right) for one in given[:10] for right in wanted):
            raise HttpRefused.of("hook.signature", "the signature of this webhook is missing or wrong", http=401)
        if not stamp.isdecimal() or len(stamp) > 20 or abs(now - int(stamp)) > _WINDOW:
            message = notice("hook.time", "the time of this webhook differs from the server's clock by more than five minutes")
            raise HttpRefused(401, message)
        if not _ID.fullmatch(delivery):
            raise HttpRefused.of("hook.id", "the webhook-id must have up to 100 letters, digits, dots, - and _", http=400)
        return f"{self.name}@{self.agent.name}@{delivery}"

    def fill(self, body: Any) -> Message:
        """Return the input: the template, with what the sender wrote in it, or after it."""
        parts, end = list[Text](), 0
        template = self.template if _PLACE.search(self.template) else f"{self.template}\n\n{{body}}".strip()
        for found in _PLACE.finditer(template):
            parts += [Text(template[end : found.start()]), Text(plain_text(_value(body, found[1])), self.source)]
            end = found.end()
        return Message("user", tuple([part for part in (*parts, Text(template[end:])) if part.text]))


class HookRoutes:
    """The addresses `/hooks/NAME`."""

    def __init__(self, service: Service, given: Mapping[str, Any]) -> None:
        self._service = service
        self._hooks = {name: Hook(name, one, service.agents) for name, one in given.items()}
        if given:
            queue_of(service.journal)

    async def receive(self, request: Request) -> Response:
        hook = self._hooks.get(request.path_params["name"])
        if hook is None:
            raise HttpRefused.of("hook.unknown", "there is no such webhook", http=404)
        raw = await _read(request)
        run_id = hook.check(request.headers, raw, time.time())
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise HttpRefused.of("hook.json", "the body of this webhook is not JSON", http=400) from None
        workflow = self._service.workflows.get(hook.agent.name)
        given = hook.fill(body) if workflow is None else Message("user", (Text(workflow.as_input(body), hook.source),))
        await hook.agent.submit(given, run_id=run_id, **hook.how)
        return Json({"run_id": run_id}, 202)


async def _read(request: Request) -> bytes:
    """Read the body, and stop when it becomes too large."""
    pieces, size = list[bytes](), 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > _LARGEST:
            raise HttpRefused.of("serve.body", "the request is larger than {most} bytes", http=413, most=_LARGEST)
    return b"".join(pieces)


def sign(secret: bytes, delivery: str, stamp: str, body: bytes) -> str:
    """Return the signature of a delivery, as Standard Webhooks says."""
    return f"v1,{b64encode(hmac.digest(secret, f'{delivery}.{stamp}.'.encode() + body, 'sha256')).decode()}"


def read_secrets(place: str, variable: str) -> list[bytes]:
    """Return the secrets in an environment variable, separated by spaces. Raises `ConfigError` if one is too short."""
    found = [_secret(one) for one in os.environ.get(variable, "").split()]
    if not found or min(map(len, found)) < _SHORTEST:
        raise ConfigError.of(
            "hook.secret",
            "{place}: set the environment variable {variable} to a secret of at least {shortest} bytes",
            place=place,
            variable=variable,
            shortest=_SHORTEST,
        )
    return found


def _secret(text: str) -> bytes:
    """Return the bytes of a secret: base64 after `whsec_`, or the text itself. Broken ones have no bytes."""
    if not text.startswith("whsec_"):
        return text.encode()
    try:
        return b64decode(text.removeprefix("whsec_"), validate=True)
    except ValueError:
        return b""


def _value(body: Any, path: str) -> Any:
    """Return the value at a path such as `body.issue.labels.0`; None if there is none."""
    for name in path.split(".")[1:]:
        if isinstance(body, list) and name.isdecimal() and int(name) < len(body):
            body = body[int(name)]
        else:
            body = body.get(name) if isinstance(body, dict) else None
    return body
