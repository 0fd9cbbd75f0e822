"""A small OpenID provider, as a process over HTTP with real keys. `POST /control` says what it shall do next, also wrongly."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import socket
import sys
import time
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT, SECRET = "kaname-desk", "a secret with spaces & signs"


class Provider:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.key: Any = RSAKey.generate_key(2048, {"kid": "first", "use": "sig"})
        self.codes: dict[str, dict[str, str]] = {}
        self.next: dict[str, Any] = {}
        self.fetched = 0

    async def settings(self, request: Request) -> Response:
        told = {
            "issuer": self.next.get("issuer", self.url),
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/keys",
        }
        return JSONResponse(told)

    async def keys(self, request: Request) -> Response:
        self.fetched += 1
        return JSONResponse(KeySet([self.key]).as_dict(private=False))

    async def authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["client_id"] == CLIENT
        if "refuse" in self.next:
            sent = {"error": "access_denied", "state": asked["state"]}
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = asked
            sent = {"code": code, "state": asked["state"], "iss": self.url}
        return RedirectResponse(f"{asked['redirect_uri']}?{urlencode(sent)}", 302)

    async def token(self, request: Request) -> Response:
        form = {name: values[0] for name, values in parse_qs((await request.body()).decode()).items()}
        asked = self.codes.pop(form.get("code", ""), None)
        given = base64.b64decode(request.headers.get("authorization", "Basic ").partition(" ")[2]).decode()
        challenge = (
            base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest()).decode().rstrip("=")
        )
        if (
            asked is None
            or unquote(given) != f"{CLIENT}:{SECRET}"
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form["redirect_uri"]
        ):
            return JSONResponse({"error": "invalid_grant"}, 400)
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": self.sign(asked["nonce"])})

    def sign(self, nonce: str) -> str:
        claims = {
            "iss": self.url,
            "aud": CLIENT,
            "sub": "u-17",
            "email": "rin@example.com",
            "groups": ["finance"],
            "nonce": nonce,
        }
        claims |= {"iat": int(time.time()), "exp": int(time.time()) + 300, **self.next.get("claims", {})}
        claims = {name: None if value == "null" else value for name, value in claims.items() if value is not None}
        how = self.next.get("sign", "")
        if how == "none":
            parts = [json.dumps(one).encode() for one in ({"alg": "none"}, claims)]
            return ".".join([base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]) + "."
        if how == "public key as secret":  # the old confusion of algorithms
            parts = [json.dumps(one).encode() for one in ({"alg": "HS256", "kid": self.key.kid}, claims)]
            signed = b".".join([base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts])
            mark = hmac.digest(self.key.as_pem(private=False), signed, "sha256")
            return (signed + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()
        key = RSAKey.generate_key(2048, {"kid": self.key.kid}) if how == "another key" else self.key
        alg = "ES256" if isinstance(key, ECKey) else "RS256"
        return jwt.encode({"alg": alg, "kid": key.kid}, claims, key)

    async def control(self, request: Request) -> Response:
        self.next = await request.json()
        if name := self.next.get("rotate"):
            self.key = ECKey.generate_key("P-256", {"kid": name, "use": "sig"})
        return JSONResponse({"fetched": self.fetched})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.settings),
                Route("/keys", self.keys),
                Route("/authorize", self.authorize),
                Route("/token", self.token, methods=["POST"]),
                Route("/control", self.control, methods=["POST"]),
            ]
        )


if __name__ == "__main__":
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(64)
        provider = Provider(taken.getsockname()[1])
        print(provider.url, flush=True)
        uvicorn.Server(uvicorn.Config(provider.app(), log_level="error")).run(sockets=[taken])
        sys.exit(0)
