"""Sign in to the page once, with a token or through the company's OpenID provider, and sign out."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from html import escape
from logging import getLogger
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...agent.agent import Agent
from ...core.errors import AgentError
from ...core.notices import notice
from ..encoding import Json
from ..forms import SignInForm, read_body
from ..problems import HttpRefused
from ..users import Caller, Users, hash_token
from .auditor import Auditor
from .cookies import SignIns, read_cookies, set_cookie
from .guessing import Guessing, Rates, TokenRefused, forget_oldest, network_of

if TYPE_CHECKING:
    from .oidc import Provider

OPEN = ("/api/signin", "/api/signout", "/signin/oidc", "/signin/callback")  # no token is needed for these
_PENDING = "-oidc"  # the end of the name of the cookie that a browser has while it is at the provider
_PENDING_SECONDS = 600
_VISITS, _VISITS_AT_ONCE = 20.0, 200  # of one address to the provider, per second and at once
log = getLogger("kaname.serve")
T = TypeVar("T")


class Access:
    """Who can sign in, and how: shared by the guard and the addresses for signing in.

    Without `signins`, there are no cookies: the program says who the caller is, or no user exists.
    """

    def __init__(
        self, users: Users | None, signins: SignIns | None, auditor: Auditor, provider: Provider | None = None
    ) -> None:
        self.users, self.signins, self.auditor, self.provider = users, signins, auditor, provider
        self._guessing = Guessing()
        self._noted: OrderedDict[str, frozenset[str]] = OrderedDict()

    def roles_of(self, user: str) -> frozenset[str] | None:
        """Return the present roles of a user, for permissions; None if they are not known.

        They are those in the users file, or those of the sign-in through the provider while it lasts, or those that the
        program's own function has returned with the last request of the user to this process.
        """
        found = [self._noted.get(user), None if self.users is None else self.users.roles_of(user)]
        found.append(None if self.signins is None else self.signins.roles_of(user))
        known = [roles for roles in found if roles is not None]
        return frozenset().union(*known) if known else None

    def note_roles(self, caller: Caller) -> None:
        """Keep the roles of a caller whom the program's own function has named."""
        self._noted[caller.name] = caller.roles
        forget_oldest(self._noted, caller.name)

    def check_token(self, token: str, address: str) -> Caller | None:
        """Return the user with that token, or None without a token. Raise `TokenRefused`."""
        return None if not token or self.users is None else self._guessing.check(token, address, self.users.caller)


def share_roles(agents: Iterable[Agent[Any]], roles_of: Callable[[str], Iterable[str] | None]) -> None:
    """Have the permissions of the agents and of their teams ask the server for the roles of a user."""
    recipes = [agent.recipe for agent in agents]
    while recipes:
        recipe = recipes.pop()
        recipes += recipe.team.values()
        for directory in [policy.about.roles for policy in recipe.policies if policy.about.roles is not None]:
            directory.known = roles_of


class SignInRoutes:
    """The addresses for signing in and out."""

    def __init__(self, access: Access) -> None:
        self._access, self._rates = access, Rates(_VISITS, _VISITS_AT_ONCE)

    async def ways(self, request: Request) -> Response:
        """Return the ways to sign in."""
        users, provider = self._access.users, self._access.provider
        return Json({"token": users is not None and users.has_tokens, "oidc": None if provider is None else provider.name})

    async def sign_in(self, request: Request) -> Response:
        form, address = await read_body(request, SignInForm), address_of(request)
        try:
            caller = self._access.check_token(form.token, address)
        except TokenRefused:
            await self._access.auditor.fail_sign_in("token", address)
            raise
        if caller is None or self._access.signins is None:
            raise HttpRefused.of("signin.none", "this server has no users who sign in with a token", http=404)
        await self._access.auditor.sign_in(caller, "page", address)
        begin = partial(self._access.signins.begin, caller.name, "token", token=hash_token(form.token), keep=form.keep)
        made, lasts = await asyncio.to_thread(begin)
        answer = Json({"name": caller.name})
        return self._with_cookie(answer, made, lasts if form.keep else None, secure=is_https(request))

    async def sign_out(self, request: Request) -> Response:
        answer = Response(status_code=204)
        if (signins := self._access.signins) is not None:
            ended = await asyncio.to_thread(signins.end, signins.given_in(request.headers.get("cookie", "")))
            if ended is not None:
                await self._access.auditor.record("sign_out", Caller(ended.user, frozenset()))
            for secure in (True, False):
                answer.headers.append("set-cookie", set_cookie(signins.cookie_name(secure), "", secure=secure, seconds=0))
        return answer

    async def go_to_provider(self, request: Request) -> Response:
        provider, signins = self._provider(request)
        back = redirect_uri(request, provider)
        secure = back.startswith("https://")
        try:
            place, pending = await _outside(provider.begin(back))
        except HttpRefused as problem:
            return _explain(request, problem)
        answer, name = RedirectResponse(place, 302), signins.cookie_name(secure) + _PENDING
        cookie = set_cookie(name, pending, secure=secure, seconds=_PENDING_SECONDS, same_site="Lax")  # the provider sends back
        answer.headers.append("set-cookie", cookie)
        return answer

    async def come_back(self, request: Request) -> Response:
        provider, signins = self._provider(request)
        address, back = address_of(request), redirect_uri(request, provider)
        secure = back.startswith("https://")
        name = signins.cookie_name(secure) + _PENDING
        pending = read_cookies(request.headers.get("cookie", "")).get(name, "")
        try:
            user, roles = await _outside(provider.finish(dict(request.query_params), pending, back))
        except HttpRefused as problem:
            await self._access.auditor.fail_sign_in("oidc", address)
            return _explain(request, problem)
        caller = Caller(user, frozenset(roles))
        await self._access.auditor.sign_in(caller, "oidc", address)
        made, _ = await asyncio.to_thread(partial(signins.begin, user, "oidc", roles=tuple(sorted(roles))))
        answer = RedirectResponse(request.scope.get("root_path", "") + "/", 302)
        answer.headers.append("set-cookie", set_cookie(name, "", secure=secure, seconds=0, same_site="Lax"))
        return self._with_cookie(answer, made, None, secure=secure)

    def _provider(self, request: Request) -> tuple[Provider, SignIns]:
        if self._access.provider is None or self._access.signins is None:
            raise HttpRefused.of("signin.no_provider", "this server has no OpenID provider (serve: oidc:)", http=404)
        if wait := self._rates.wait(network_of(address_of(request))):  # each visit may ask the provider something
            message = notice("serve.rate", "too many requests; try again in {wait} s", wait=wait)
            raise HttpRefused(429, message, retry_after=str(wait))
        return self._access.provider, self._access.signins

    def _with_cookie(self, answer: Response, made: str, seconds: float | None, *, secure: bool) -> Response:
        signins = self._access.signins
        assert signins is not None
        answer.headers.append("set-cookie", set_cookie(signins.cookie_name(secure), made, secure=secure, seconds=seconds))
        return answer


def _explain(request: Request, problem: HttpRefused) -> Response:
    """Return an error as a small page: the browser has come here by itself, and no script of ours is there to show it."""
    back = escape(request.scope.get("root_path", "") + "/", quote=True)
    head = '<!doctype html><meta charset="utf-8"><title>kaname</title>'
    text = f'{head}<p>{escape(str(problem))}</p><p><a href="{back}">kaname</a></p>'
    return Response(text, problem.status, problem.headers, media_type="text/html; charset=utf-8")


async def _outside(work: Awaitable[T]) -> T:
    """Wait for the provider. What goes wrong there is logged, and told without its details."""
    try:
        return await work
    except HttpRefused as problem:
        log.warning("signing in through the OpenID provider failed: %s", problem)
        raise
    except AgentError as problem:
        log.error("signing in through the OpenID provider failed: %s", problem)
        message = notice("signin.unavailable", "the OpenID provider cannot be used now; see the server's log")
        raise HttpRefused(502, message) from None


def redirect_uri(request: Request, provider: Provider) -> str:
    """Return the address to which the provider sends the browser back."""
    if provider.redirect_uri:
        return provider.redirect_uri
    scheme = "https" if is_https(request) else "http"
    return f"{scheme}://{request.headers.get('host', '')}{request.scope.get('root_path', '')}/signin/callback"


def is_https(request: Request) -> bool:
    """Return True if the browser speaks HTTPS, possibly with a proxy in front of this server."""
    origin: Any = request.headers.get("origin", "")
    return request.scope.get("scheme") == "https" or origin.startswith("https://")


def address_of(request: Request) -> str:
    client: Any = request.scope.get("client")
    return client[0] if client else ""
