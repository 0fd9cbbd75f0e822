"""Media from where a caller has them: an object, bytes, a file, or a web address."""

from __future__ import annotations

import asyncio
import http.client
import ipaddress
import re
import socket
import ssl
import threading
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from ..core.errors import ConfigError
from ..core.messages import Media
from ..core.notices import notice
from ..core.reading.media_types import UNKNOWN, WrongMediaType, checked_type, contradiction, read_regular, type_of
from ..core.record import replace
from .process.client import SenseError, worker

Source = Media | bytes | str | Path
MOST_BYTES = 50_000_000
_HEAD, _LOOKED_AT = 4096, 1_000_000
_GROUPS = ("image", "audio", "video", "executable", "archive")
_LAST_BITS = ("64:ff9b::/96", "::/96")  # NAT64, and the older compatible form: an IPv4 address in the last 32 bits
_LOCAL = ("64:ff9b:1::/48", "2001::/32", "2002::/16")  # NAT64 of one network; Teredo; 6to4, which is no longer routed
_SECONDS, _LONGEST, _REDIRECTS = 30.0, 120.0, 3  # seconds without a byte, seconds in all


async def open_source(source: Source, *, most: int = MOST_BYTES) -> Media:
    """Return a medium with its content and its true type.

    Args:
        source: A `Media`, bytes, a path, or an address that begins with http:// or https://.
        most: The largest size in bytes.

    Raises:
        ConfigError: It is too large, or its content contradicts its name.
        SenseError: The address cannot be fetched, or is not a public one.
    """
    try:
        return await _open(source, most)
    except WrongMediaType as problem:
        raise ConfigError(problem.args[0]) from None


async def _open(source: Source, most: int) -> Media:
    if isinstance(source, str) and re.match(r"https?://", source):
        source = Media("", url=source)
    if isinstance(source, str | Path):
        source = await asyncio.to_thread(_read_file, source, most)
    if isinstance(source, bytes):
        source = Media.of(source)
    if not source.data and source.url:
        content, mime = await asyncio.to_thread(fetch, source.url, most)
        name = source.name or Path(urlsplit(source.url).path).name
        source = Media.of(content, source.mime or mime, name)
    content = source.content
    if not content:
        raise ConfigError.of("media.empty", "{name} is empty", name=source.name or "the file")
    if len(content) > most:
        raise _too_large(source.name, most)
    mime = checked_type(content, source.name, source.mime)
    if not type_of(content) and b"\0" in content[:_HEAD] and find_spec("magika") is not None:
        mime = await _second_look(content, mime, source.name)
    return replace(source, mime=mime)


async def _second_look(content: bytes, mime: str, name: str) -> str:
    """Ask a model what binary data is, if its first bytes are not known. Raises `WrongMediaType` for a contradiction."""
    try:
        found, _ = await worker("decoding").do("identify", [content[:_LOOKED_AT]])
    except SenseError:
        return mime
    if not found["sure"]:
        return mime
    if mime == UNKNOWN:
        return str(found["mime"])
    if found["group"] in _GROUPS and mime.partition("/")[0] in {*_GROUPS, "text"} - {found["group"]}:
        raise contradiction(name, mime, found["mime"])
    return mime


def _read_file(given: str | Path, most: int) -> Media:
    path = Path(given).expanduser()
    content = read_regular(path, most)
    if len(content) > most:
        raise _too_large(path.name, most)
    return Media.of(content, name=path.name)


def _too_large(name: str, most: int) -> ConfigError:
    return ConfigError.of(
        "media.too_large", "{name} is larger than {most:,} bytes, the limit", name=name or "the file", most=most
    )


def fetch(url: str, most: int = MOST_BYTES) -> tuple[bytes, str]:
    """Fetch a public address, and return the content and its stated type.

    Addresses of this machine and of private networks are refused, also after a redirect: a model could be talked into them.
    The name is resolved once, and the connection goes to that address.
    """
    for _ in range(_REDIRECTS + 1):
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname or found.username:
            raise SenseError.of("senses.bad_url", "{url!r} cannot be fetched: it is not a plain http address", url=url[:200])
        address = public_address(found.hostname, found.port or (443 if found.scheme == "https" else 80))
        try:
            with_content, kind = _get(found.scheme, found.hostname, address, url, most)
        except (OSError, http.client.HTTPException) as problem:
            message = notice("senses.fetch_failed", "{host} cannot be reached: {problem}", host=found.hostname, problem=problem)
            raise SenseError(message) from problem
        if isinstance(with_content, bytes):
            return with_content, kind
        url = urljoin(url, with_content)
    raise SenseError.of("senses.redirects", "{host} redirects too often", host=found.hostname)


def _is_public(place: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return True if an address is public. Of an IPv6 address that leads to an IPv4 address, that one has to be public, too."""
    if isinstance(place, ipaddress.IPv6Address):
        if place.ipv4_mapped is not None:
            return _is_public(place.ipv4_mapped)
        inner = ipaddress.IPv4Address(int(place) & 0xFFFF_FFFF) if _is_in(place, _LAST_BITS) else None
        if _is_in(place, _LOCAL) or (inner is not None and not _is_public(inner)):
            return False
    return place.is_global and not place.is_multicast


def _is_in(place: ipaddress.IPv6Address, networks: tuple[str, ...]) -> bool:
    return any(place in ipaddress.IPv6Network(one) for one in networks)


def public_address(host: str, port: int) -> tuple[str, int]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise SenseError.of("senses.no_host", "the host {host} was not found", host=host) from problem
    for entry in found:
        place = ipaddress.ip_address(str(entry[4][0]).partition("%")[0])
        if not _is_public(place):
            raise SenseError.of("senses.private_host", "{host} is not a public address; it was not fetched", host=host)
    return str(found[0][4][0]), port


def _get(scheme: str, host: str, address: tuple[str, int], url: str, most: int) -> tuple[bytes | str, str]:
    """Return the content and its type, or the address of a redirect."""
    sock = socket.create_connection(address, timeout=_SECONDS)
    over = threading.Event()

    def give_up() -> None:
        over.set()
        with suppress(OSError):  # closed meanwhile
            sock.shutdown(socket.SHUT_RDWR)

    late = threading.Timer(_LONGEST, give_up)  # a server that sends a byte now and then
    late.daemon = True
    late.start()
    try:
        sock = ssl.create_default_context().wrap_socket(sock, server_hostname=host) if scheme == "https" else sock
        connection = http.client.HTTPConnection(host, address[1], timeout=_SECONDS)
        connection.sock, parts = sock, urlsplit(url)
        connection.request("GET", (parts.path or "/") + (f"?{parts.query}" if parts.query else ""), headers={"accept": "*/*"})
        with connection.getresponse() as answer:
            if answer.status in (301, 302, 303, 307, 308):
                return answer.getheader("location") or "", ""
            if answer.status != 200:
                raise SenseError.of("senses.fetch_status", "{host} returned HTTP {status}", host=host, status=answer.status)
            content = answer.read(most + 1)
            if over.is_set():  # what came is not all of it
                raise ConnectionAbortedError
            if len(content) > most:
                raise _too_large(host, most)
            return content, (answer.getheader("content-type") or "").partition(";")[0].strip()
    except (OSError, http.client.HTTPException) as problem:
        if over.is_set():
            raise TimeoutError(f"it takes longer than {_LONGEST:g} s") from problem
        raise
    finally:
        late.cancel()
        sock.close()
