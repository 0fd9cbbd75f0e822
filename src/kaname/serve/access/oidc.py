"""Sign in through an OpenID provider: authorization code with PKCE, state and nonce, and a validated ID token."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import os
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from ...core.errors import AgentConnectionError, ConfigError
from ...core.install import install_command
from ...core.notices import notice
from ...core.web import BadStatus, request
from ..problems import HttpRefused
from ..users import is_name
from .proxies import parse_address

_ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]  # never a shared secret
_SECONDS = 10.0  # for a request to the provider
_LARGEST = 1_000_000  # bytes of an answer of the provider
_LEEWAY = 60  # seconds that the clocks can differ
_FRESH = 3600.0  # seconds after which the provider's settings and keys are read again
_AGAIN = 10.0  # seconds between two searches for a key that is unknown


class Provider:
    """An OpenID provider of the company.

    Args:
        issuer: Its address, such as "https://login.example.com". It must be https, except on this machine.
        client_id: The id of this server at the provider.
        groups: The roles by group: `{"finance": ["talk", "approve"]}`. A user without a role is refused.
        client_secret_env: The environment variable with the client secret. Without it, the server is a public client.
        user: The claim with the name of the user (default: "sub", which never changes).
        groups_claim: The claim with the groups (default: "groups").
        scopes: What to ask for (default: openid, email and profile).
        redirect_uri: Where the provider sends the browser back (default: the address that the browser uses, with
            "/signin/callback" at its end).
        name: The name on the page (default: the host of the issuer).

    Raises:
        ConfigError: If a setting is wrong, the secret is missing, or `joserfc` is not installed.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        groups: Mapping[str, Any],
        *,
        client_secret_env: str = "",
        user: str = "sub",
        groups_claim: str = "groups",
        scopes: tuple[str, ...] | list[str] = ("openid", "email", "profile"),
        redirect_uri: str = "",
        name: str = "",
    ) -> None:
        try:
            import joserfc.jwt  # noqa: F401
        except ImportError as missing:
            message = notice("oidc.no_package", "joserfc is not installed. Install it with: {how}", how=install_command("oidc"))
            raise ConfigError(message) from missing
        if not groups:
            raise ConfigError.of("oidc.no_groups", "no group has a role, so nobody could sign in: name some under groups")
        _require_safe(issuer)
        secret = os.environ.get(client_secret_env, "") if client_secret_env else ""
        if client_secret_env and not secret:
            raise ConfigError.of(
                "oidc.no_secret", "the environment variable {name} with the client secret is not set", name=client_secret_env
            )
        self.issuer, self.name, self.redirect_uri = issuer, name or urlsplit(issuer).netloc, redirect_uri
        self._client, self._secret, self._claim, self._groups_claim = client_id, secret, user, groups_claim
        self._groups = {group: frozenset([given] if isinstance(given, str) else given) for group, given in groups.items()}
        self._scope = " ".join(dict.fromkeys(["openid", *scopes]))
        self._known: dict[str, tuple[float, Mapping[str, Any] | AgentConnectionError]] = {}  # what was read, by address
        self._reading = asyncio.Lock()

    async def begin(self, redirect: str) -> tuple[str, str]:
        """Return the address of the provider to go to, and what the browser has to bring back in a cookie."""
        settings = await self._settings()
        state, nonce, verifier = [secrets.token_urlsafe(32) for _ in range(3)]
        challenge = base64.urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._client,
            "redirect_uri": redirect,
            "scope": self._scope,
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        place = settings["authorization_endpoint"]
        return f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}", f"{state}.{nonce}.{verifier}"

    async def finish(self, asked: Mapping[str, str], pending: str, redirect: str) -> tuple[str, frozenset[str]]:
        """Return the user and the roles, from what the provider has sent back with the browser.

        Raises:
            HttpRefused: If it does not belong to this browser, the provider refused, or the user has no role here.
            AgentConnectionError: If the provider cannot be reached.
        """
        state, nonce, verifier = [*pending.split("."), "", "", ""][:3]
        if not state or not hmac.compare_digest(state.encode(), asked.get("state", "").encode()):
            raise HttpRefused.of(
                "oidc.state", "this sign-in was not begun in this browser, or it took too long; try again", http=400
            )
        if asked.get("iss", self.issuer) != self.issuer or not asked.get("code"):
            raise HttpRefused.of(
                "oidc.refused", "the OpenID provider refused the sign-in: {error:.100}", http=403, error=asked.get("error", "?")
            )
        tokens = await self._exchange(asked["code"], verifier, redirect)
        return self._admit(await self._validate(tokens.get("id_token"), nonce))

    def _admit(self, claims: Mapping[str, Any]) -> tuple[str, frozenset[str]]:
        user, groups = claims.get(self._claim), claims.get(self._groups_claim)
        if not isinstance(user, str) or not is_name(user) or len(user) > 200:
            message = notice(
                "oidc.no_user", "the ID token has no usable claim {claim!r} with the name of the user", claim=self._claim
            )
            raise HttpRefused(403, message)
        if self._claim == "email" and claims.get("email_verified", True) is not True:
            raise HttpRefused.of("oidc.unverified", "the OpenID provider has not verified this e-mail address", http=403)
        listed = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        roles = frozenset().union(*[self._groups.get(one, ()) for one in listed if isinstance(one, str)])
        if not roles:
            raise HttpRefused.of(
                "oidc.no_role", "none of your groups has a role on this server; ask its administrator", http=403
            )
        return user, roles

    async def _exchange(self, code: str, verifier: str, redirect: str) -> Mapping[str, Any]:
        settings = await self._settings()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
        headers: dict[str, str] = {}
        supported = settings.get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if self._secret and "client_secret_basic" in supported:
            pair = f"{quote(self._client, safe='')}:{quote(self._secret, safe='')}"
            headers["authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form |= {"client_id": self._client, **({"client_secret": self._secret} if self._secret else {})}
        try:
            return await asyncio.to_thread(_fetch, settings["token_endpoint"], urlencode(form).encode(), headers)
        except _Refused:
            raise HttpRefused.of("oidc.code", "the OpenID provider did not accept the sign-in; try again", http=403) from None

    async def _validate(self, token: Any, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token. Its signature, issuer, audience, expiry and nonce have to be right."""
        from joserfc import jwt
        from joserfc.errors import JoseError

        try:
            found = jwt.decode(token, await self._find_keys(str(token)), algorithms=_ALGORITHMS)
            registry = jwt.JWTClaimsRegistry(
                leeway=_LEEWAY,
                iss={"essential": True, "value": self.issuer},
                aud={"essential": True, "value": self._client},
                exp={"essential": True},
                iat={"essential": True},
                nonce={"essential": True, "value": nonce},
            )
            registry.validate(found.claims)
            claims: Mapping[str, Any] = found.claims
            several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
            if claims.get("azp", None if several else self._client) != self._client:
                raise ValueError("azp")
        except (JoseError, ValueError, TypeError, KeyError, AttributeError) as problem:
            why = str(problem) or type(problem).__name__
            raise HttpRefused.of(
                "oidc.token", "the ID token of the OpenID provider is not valid: {why:.200}", http=403, why=why
            ) from None
        return claims

    async def _find_keys(self, token: str) -> Any:
        """Return the keys of the provider. They are read again if the key of the token is not among them: keys rotate."""
        from joserfc.jwk import KeySet

        head, place = token.partition(".")[0], (await self._settings())["jwks_uri"]
        named = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4))).get("kid")
        keys = KeySet.import_key_set(dict(await self._look_up(place)))  # type: ignore[arg-type]
        if named is not None and named not in {key.kid for key in keys.keys}:
            keys = KeySet.import_key_set(dict(await self._look_up(place, _AGAIN)))  # type: ignore[arg-type]
        return keys

    async def _settings(self) -> Mapping[str, Any]:
        """Return the settings of the provider. Raise `AgentConnectionError` if it is another, or its addresses are not safe."""
        found = await self._look_up(self.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.issuer:
            name = str(found.get("issuer"))[:200]
            raise AgentConnectionError.of(
                "oidc.issuer", "the provider calls itself {name!r}, not {wanted!r}", name=name, wanted=self.issuer
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            _require_safe(str(found.get(name)))
        return found

    async def _look_up(self, url: str, fresh: float = _FRESH) -> Mapping[str, Any]:
        """Return the JSON document of the provider at an address. Concurrent callers share one request, and a failure is
        remembered for a short time.

        `fresh`: seconds for which the last answer is good enough.
        """
        async with self._reading:
            since, found = self._known.get(url, (0.0, None))
            if isinstance(found, AgentConnectionError):
                fresh = _AGAIN
            if found is None or time.monotonic() - since > fresh:
                try:
                    found = await asyncio.to_thread(_fetch, url)
                except AgentConnectionError as problem:
                    found = problem
                self._known[url] = time.monotonic(), found
        if isinstance(found, AgentConnectionError):
            raise found
        return found


class _Refused(Exception):
    """The provider answered that the request is wrong."""


def _fetch(url: str, form: bytes | None = None, headers: Mapping[str, str] | None = None) -> Mapping[str, Any]:
    try:
        found = json.loads(request(url, form, headers, timeout=_SECONDS, most=_LARGEST).content)
    except BadStatus as problem:
        if form is not None and 400 <= problem.status < 500:
            raise _Refused from None
        why = str(problem)
    except (OSError, ValueError) as problem:
        why = str(problem)
    else:
        if isinstance(found, dict):
            return found
        why = "no JSON object"
    raise AgentConnectionError.of("oidc.unreachable", "the OpenID provider failed at {url}: {why}", url=url, why=why)


def _require_safe(url: str) -> None:
    """Raise `ConfigError` for an address that is not https, unless it is on this machine."""
    found = urlsplit(url)
    address = parse_address(found.hostname or "")
    local = found.hostname == "localhost" or (address is not None and address.is_loopback)
    if found.scheme != "https" and not (found.scheme == "http" and local):
        raise ConfigError.of("oidc.address", "the OpenID provider must have an https address, not {url!r:.200}", url=url)
