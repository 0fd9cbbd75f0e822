"""The address of a client behind proxies. `X-Forwarded-For` counts only from proxies that the operator has named."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...core.errors import ConfigError
from ...core.notices import notice

if TYPE_CHECKING:
    from starlette.types import Scope

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies in front of the server.

    Args:
        named: Their addresses or networks, such as "10.0.0.5" or "10.0.0.0/8".

    Raises:
        ConfigError: If one of them is not an address or a network.
    """

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._networks = [_network(one) for one in named]

    def resolve(self, scope: Scope, headers: Mapping[str, str]) -> None:
        """Put the address and the scheme of the client into the scope if a named proxy sent the request.

        Each proxy appends the address that it sees. The last one that is not a named proxy is therefore the client; what
        stands before it was written by the client.
        """
        client: Any = scope.get("client")
        nearest = parse_address(client[0]) if client else None
        if nearest is None or not self._names(nearest):
            return
        for entry in reversed(headers.get("x-forwarded-for", "").split(",")):
            found = parse_address(entry)
            if found is None:
                break
            nearest = found
            if not self._names(found):
                break
        scope["client"] = str(nearest), 0
        scheme = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        if scheme in ("http", "https"):
            scope["scheme"] = scheme

    def _names(self, address: _Address) -> bool:
        return any(address in network for network in self._networks)


def address_of(scope: Scope) -> str:
    """Return the address that a request came from. A Unix socket has none."""
    client: Any = scope.get("client")
    return client[0] if client else ""


def _network(named: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(named.strip(), strict=False)
    except (ValueError, AttributeError):
        message = notice("serve.proxy", "name a proxy by its address or network, such as 10.0.0.5 or 10.0.0.0/8, not {named!r}",
                      named=str(named)[:100])  # fmt: skip
        raise ConfigError(message) from None


def parse_address(entry: str) -> _Address | None:
    """Return an address, which may have a port (`192.0.2.1:4711`, `[2001:db8::1]:4711`); None if it is not one."""
    text = entry.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found  # of a socket that serves both families
