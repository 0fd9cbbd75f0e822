"""OAuth for servers that require it: tokens in a file of the user, refreshed automatically, and a sign-in when necessary."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from hashlib import sha256
from html import escape
from threading import get_ident
from time import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from ...core.errors import AgentConnectionError
from ...core.install import this_command
from ...core.notices import notice
from ...core.project import user_state
from .config import Entry
from .questions import Clock, Elicit

_SIGN_IN_SECONDS = 600.0
_FIRST_PORT, _PORTS = 16_384, 16_000  # below those that systems give to outgoing connections
_TAKEN = "the port is taken"


class TokenFile:
    """The tokens and the registration of one server for this user, in a file of its own with mode 0600."""

    def __init__(self, entry: Entry) -> None:
        known = json.dumps([entry.url, dict(entry.auth or {})], sort_keys=True, default=str)
        self._path = os.path.join(user_state(), "mcp-tokens", f"{sha256(known.encode()).hexdigest()[:32]}.json")

    @property
    def knows_client(self) -> bool:
        return "client" in self._read()

    def forget(self) -> None:
        with suppress(FileNotFoundError):
            os.unlink(self._path)

    async def get_tokens(self) -> Any:
        held = self._read().get("tokens")
        return None if held is None else OAuthToken.model_validate(held)

    async def set_tokens(self, tokens: Any) -> None:
        ends = None if tokens.expires_in is None else time() + int(tokens.expires_in)
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True), expires_at=ends)

    @property
    def expires_at(self) -> float | None:
        """The time at which the stored token expires. It is kept because `expires_in` counts from when the token was issued."""
        return self._read().get("expires_at")

    async def get_client_info(self) -> Any:
        held = self._read().get("client")
        return None if held is None else OAuthClientInformationFull.model_validate(held)

    async def set_client_info(self, client_info: Any) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def _read(self) -> dict[str, Any]:
        try:
            with open(self._path, encoding="utf-8") as file:
                held = json.load(file)
        except (FileNotFoundError, ValueError):  # not signed in yet; or cut off, which another sign-in mends
            return {}
        return held if isinstance(held, dict) else {}

    def _write(self, **parts: Any) -> None:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        beside = f"{self._path}.{os.getpid()}-{get_ident()}"
        with open(os.open(beside, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            json.dump({**self._read(), **parts}, file)
        os.replace(beside, self._path)


class ForgottenClient(AgentConnectionError):
    """The server does not know the registered client, which must be registered again."""


class SignIn:
    """The sign-in of a user: shows the server's page through `elicit`, then waits for the callback or the pasted address."""

    def __init__(self, entry: Entry, elicit: Elicit | None, clock: Clock) -> None:
        self._entry, self._elicit, self._clock = entry, elicit, clock
        number = int.from_bytes(sha256(entry.url.encode()).digest()[:4], "big")
        self.port = int((entry.auth or {}).get("callback_port") or _FIRST_PORT + number % _PORTS)  # stays: it is registered
        self._page, self.stored = "", False

    @property
    def callback(self) -> str:
        return f"http://127.0.0.1:{self.port}/callback"

    async def show(self, address: str) -> None:
        if self._elicit is None:
            raise AgentConnectionError.of(
                "mcp.sign_in_first",
                "the tool server {name!r} needs you to sign in. Run `{command} tools` in a terminal, or pass elicit=…",
                name=self._entry.name,
                command=this_command(),
            )
        if self.stored and await _is_refused(address):
            TokenFile(self._entry).forget()
            raise ForgottenClient.of("mcp.forgotten", "the server no longer knows this client. It is registered again.")
        self._page = address

    async def wait_for_code(self) -> Any:
        """Wait for the authorization code. The time limits of calls are paused meanwhile.

        Raises `AgentConnectionError` if the sign-in is refused, times out, or its port is taken."""
        code: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        listener = await self._listen(code)
        asking = asyncio.ensure_future(self._ask(code, listener is not None))
        try:
            async with self._clock.pause(), asyncio.timeout(_SIGN_IN_SECONDS):
                held = await code
        except TimeoutError:
            raise AgentConnectionError.of(
                "mcp.sign_in_late", "the sign-in was not completed within {seconds:g} s", seconds=_SIGN_IN_SECONDS
            ) from None
        finally:
            asking.cancel()
            if listener is not None:
                listener.close()
        if held.get("error") == _TAKEN:
            raise AgentConnectionError.of(
                "mcp.port_taken",
                "port {port}, on which kaname waits for the browser, is in use. Try again, or set another callback_port.",
                port=self.port,
            )
        if "error" in held or "code" not in held:
            why = held.get("error_description") or held.get("error") or notice("mcp.no_code", "no code came back")
            raise AgentConnectionError.of("mcp.sign_in_refused", "the sign-in was refused: {why}", why=why)
        return AuthorizationCodeResult(code=held["code"], state=held.get("state"), iss=held.get("iss"))

    async def _ask(self, code: asyncio.Future[Mapping[str, str]], listening: bool) -> None:
        """Ask the user to open the page. `{}` means that it will be opened; a `url` is the pasted address of the callback."""
        assert self._elicit is not None
        question = notice("mcp.sign_in", "Sign in to use the tools of this server.")
        schema = {"url": self._page, "callback": self.callback}
        outcome = (await asyncio.gather(self._elicit(self._entry.name, question, schema), return_exceptions=True))[0]
        if isinstance(outcome, Mapping):
            if outcome.get("url") and not code.done():
                code.set_result(_query(str(outcome["url"])))
            elif not listening and not code.done():
                code.set_result({"error": _TAKEN})
        elif not code.done():
            why = str(outcome) or type(outcome).__name__ if isinstance(outcome, BaseException) else "declined"
            code.set_result({"error": why})

    async def _listen(self, code: asyncio.Future[Mapping[str, str]]) -> asyncio.Server | None:
        """Listen for the callback on this machine only. Returns None if the port is taken: then the address must be pasted."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(5):
                    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, _, rest = head.partition(" ")
                target = rest.partition(" ")[0]
                fits = method == "GET" and urlsplit(target).path == "/callback"
                told = notice("mcp.signed_in", "You are signed in. You can close this page.") if fits else "Not found"
                body = f"<!doctype html><meta charset=utf-8><title>kaname</title><p>{escape(told)}".encode()
                status = "200 OK" if fits else "404 Not Found"
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
                )
                await writer.drain()
                if fits and not code.done():
                    code.set_result(_query(target))
            writer.close()

        try:
            return await asyncio.start_server(answer, "127.0.0.1", self.port)
        except OSError:
            return None


async def _is_refused(address: str) -> bool:
    """Return True if the server refuses to show the sign-in page. Requesting the page has no effect before a sign-in."""
    try:
        async with httpx2.AsyncClient(timeout=10) as client:
            return (await client.get(address, follow_redirects=False)).status_code in (400, 401)
    except httpx2.HTTPError:
        return False


def _query(address: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


def oauth(entry: Entry, elicit: Elicit | None, clock: Clock) -> Any:
    """Return the httpx auth object that signs the requests to this server."""
    held, file = dict(entry.auth or {}), TokenFile(entry)
    given = held.get("scopes")
    scope = (given if isinstance(given, str) else " ".join(given or ())) or None
    if held.get("grant") == "client_credentials":
        secret, issuer = str(held["client_secret"]), held.get("issuer")
        return ClientCredentialsOAuthProvider(entry.url, file, held["client_id"], secret, scope=scope, issuer=issuer)
    return Signer(entry, file, SignIn(entry, elicit, clock), scope)


class Signer(OAuthClientProvider):
    """OAuth that supports a client registered in advance (`client_id`) as well as dynamic registration."""

    def __init__(self, entry: Entry, file: TokenFile, sign_in: SignIn, scope: str | None) -> None:
        self._held, self._file, self._sign_in = dict(entry.auth or {}), file, sign_in
        self._told: dict[str, Any] = {
            "client_name": "kaname",
            "redirect_uris": [AnyUrl(sign_in.callback)],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "scope": scope,
        }
        sign_in.stored = file.knows_client and not self._held.get("client_id")
        metadata, address = OAuthClientMetadata(**self._told), self._held.get("client_metadata_url")
        super().__init__(entry.url, metadata, file, sign_in.show, sign_in.wait_for_code, address)

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.token_expiry_time = self._file.expires_at
        if self._held.get("client_id") and self.context.client_info is None:
            secret = self._held.get("client_secret")
            how = "client_secret_basic" if secret else "none"
            self.context.client_info = OAuthClientInformationFull(
                client_id=self._held["client_id"], client_secret=secret, token_endpoint_auth_method=how, **self._told
            )

    async def _auth_flow(self, request: Any) -> AsyncGenerator[Any, Any]:
        """Refresh a refused token first, if possible, before the user has to sign in."""
        async with aclosing(super()._auth_flow(request)) as flow:
            asked, renewed = await anext(flow), False
            while True:
                response = yield asked
                if asked is request and response.status_code == 401 and not renewed and self.context.can_refresh_token():
                    renewed = True
                    answer = yield await self._refresh_token()
                    if await self._handle_refresh_response(answer):
                        self._add_auth_header(request)
                        response = yield request
                try:
                    asked = await flow.asend(response)
                except StopAsyncIteration:
                    return

    async def _perform_authorization(self) -> Any:
        if self._held.get("client_secret") and self.context.client_info is not None and self.context.oauth_metadata is not None:
            ways = self.context.oauth_metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            if "client_secret_basic" not in ways:
                self.context.client_info.token_endpoint_auth_method = "client_secret_post"
            await self._file.set_client_info(self.context.client_info)
        return await super()._perform_authorization()
