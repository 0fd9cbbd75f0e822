"""Address of a request: URL, and the proxy that the environment names."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from typing import NamedTuple
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from ...core.errors import ConfigError
from ...core.notices import notice

UNIX = "http+unix"  # http+unix://%2Frun%2Fserver.sock/v1: a socket in a file
_QUERY = "/%:@!$&'()*+,;=~?"


class Route(NamedTuple):
    """The route of a request, computed once: the address, the target of the request line, and the proxy.

    A `host` that begins with "/" is a socket in a file.
    """

    host: str
    port: int
    tls: bool
    target: str
    netloc: str
    proxy: SplitResult | None

    @property
    def place(self) -> tuple[str, int, bool, SplitResult | None]:
        return self.host, self.port, self.tls, self.proxy


def _netloc(host: str, port: int | None) -> str:
    named = f"[{host}]" if ":" in host else host
    return named if port is None else f"{named}:{port}"


@cache
def route_to(url: str) -> Route:
    """Return the route to an address. The environment is read once for each address."""
    try:
        address = urlsplit(url)
        if address.scheme == UNIX and address.netloc:
            return Route(unquote(address.netloc), 0, False, address.path or "/", "localhost", None)
        port = address.port or (443 if address.scheme == "https" else 80)
        name = (address.hostname or "").encode("idna").decode()
    except ValueError as problem:  # no port, no IPv6 address, no name
        raise _no_address(url, str(problem)) from problem
    if address.scheme not in ("http", "https") or not name:
        raise _no_address(url, notice("model.url_scheme", "it must begin with http:// or https:// and a host"))
    tls = address.scheme == "https"
    path = quote(address.path or "/", safe="/%:@!$&'()*+,;=~")
    if address.query:
        path += f"?{quote(address.query, safe=_QUERY)}"
    proxy = _proxy_for(address, port)
    netloc = _netloc(name, address.port)
    target = f"http://{netloc}{path}" if proxy is not None and not tls else path
    return Route(name, port, tls, target, netloc, proxy)


def _no_address(url: str, why: str) -> ConfigError:
    return ConfigError.of("model.bad_url", "{url!r} is not a valid URL: {why}", url=url, why=why)


def endpoint(base_url: str, path: str, without: str = "") -> str:
    """Return the address of a service below a base.

    A query (`?api-version=…`) stays at the end. Keys in an address are refused.
    """
    try:
        parts = urlsplit(base_url)
        secret = bool(parts.username or parts.password)
    except ValueError:
        return base_url.rstrip("/") + path  # `route_to` will say what is wrong
    if secret:
        raise ConfigError.of(
            "model.password_in_url",
            "base_url must not contain a user name or a password, because messages would show them: use api_key or headers",
        )
    return urlunsplit(parts._replace(path=parts.path.rstrip("/").removesuffix(without) + path, fragment=""))


def is_here(host: str) -> bool:
    """Return True for this machine. A proxy cannot reach it, and must not see such requests."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    from ipaddress import ip_address

    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _proxy_for(address: SplitResult, port: int) -> SplitResult | None:
    if is_here(address.hostname or ""):
        return None
    from urllib.request import getproxies, proxy_bypass  # slow to load, and a local server needs no proxy

    proxies = getproxies()
    found = proxies.get(address.scheme) or proxies.get("all")
    if not found or proxy_bypass(f"{address.hostname}:{port}"):
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        raise ConfigError.of(
            "model.proxy_scheme",
            "the proxy in the environment is {scheme}://, but only http and https proxies are supported",
            scheme=proxy.scheme,
        )
    return proxy


def pass_of(route: Route) -> list[str]:
    """Return the header with the proxy's user and password, if its address has them."""
    if route.proxy is None or not route.proxy.username:
        return []
    name, word = unquote(route.proxy.username), unquote(route.proxy.password or "")
    return ["proxy-authorization: Basic " + b64encode(f"{name}:{word}".encode()).decode()]
