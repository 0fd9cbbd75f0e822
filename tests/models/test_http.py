"""The way to a provider: connections, proxies, certificates, and servers that behave badly. Real sockets throughout."""

import asyncio
import gzip
import ssl
import threading
import time
import warnings
from base64 import b64decode
from contextlib import asynccontextmanager, suppress

import pytest
import trustme

from kaname import Agent, ConfigError, ModelRequest
from kaname.core import errors
from kaname.core.messages import user
from kaname.models import OpenAI, Timeouts
from kaname.models.http import client as http
from kaname.models.http.address import route_to
from kaname.testing.wire import WireServer, reply, status

EVENTS = b"".join(b"data: " + event + b"\n\n" for event in reply("hello").events)
STREAM = b"content-type: text/event-stream\r\n"


@pytest.fixture(autouse=True)
def fresh_environment(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    forget()
    yield
    forget()


def forget():
    """Let the client read the environment again: proxies, certificates."""
    route_to.cache_clear()
    http._trust.cache_clear()


async def quiet(*_):
    pass


async def asked(url, **more):
    model = OpenAI("any", base_url=url, api_key="sk-secret", **more)
    try:
        return await model.reply(ModelRequest((user("hi"),)), quiet)
    finally:
        await model.close()


@asynccontextmanager
async def serving(handle, **tls):
    """A server whose every connection is given to `handle(reader, writer)`."""

    async def guarded(reader, writer):
        try:
            await handle(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(guarded, "127.0.0.1", 0, **tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def request_of(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next((int(line.split(":")[1]) for line in head.lower().split("\r\n") if line.startswith("content-length")), 0)
    return head, await reader.readexactly(length)


def answering(*pieces, pause=0.0):
    async def handle(reader, writer):
        await request_of(reader)
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return handle


def chunked(body):
    return (
        b"".join(b"%x;note=1\r\n%s\r\n" % (len(body[i : i + 9]), body[i : i + 9]) for i in range(0, len(body), 9))
        + b"0\r\n\r\n"
    )


GOOD = {
    "to the end of the connection": [b"HTTP/1.1 200 OK\r\n" + STREAM + b"\r\n", EVENTS],
    "HTTP/1.0": [b"HTTP/1.0 200 OK\r\n" + STREAM + b"\r\n" + EVENTS],
    "chunked": [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + STREAM + b"\r\n" + chunked(EVENTS)],
    "chunked, byte by byte": [
        bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + STREAM + b"\r\n" + chunked(EVENTS)
    ],
    "packed": [
        b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n" % len(gzip.compress(EVENTS)) + STREAM + b"\r\n",
        *[bytes([byte]) for byte in gzip.compress(EVENTS)],
    ],
    "continue first": [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + STREAM + b"\r\n" + EVENTS],
    "an answer that nobody asked for after it": [
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(EVENTS) + STREAM + b"\r\n" + EVENTS,
        b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno",
    ],
}


@pytest.mark.parametrize("pieces", GOOD.values(), ids=GOOD)
async def test_an_answer_in_any_framing(pieces):
    async with serving(answering(*pieces)) as port:
        assert (await asked(f"http://127.0.0.1:{port}")).message.text == "hello"


BAD = {
    "no HTTP": ([b"SSH-2.0-OpenSSH_9.6\r\n"], "not HTTP"),
    "nothing": ([], "closed the connection"),
    "half a head": ([b"HTTP/1.1 200 OK\r\ncontent-"], "closed the connection"),
    "half a body": ([b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n" + STREAM + b"\r\n" + EVENTS[:40]], "closed the connection"),
    "half a chunk": (
        [b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n" + STREAM + b"\r\n64\r\nda"],
        "closed the connection",
    ),
    "a head without end": ([b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 90_000], "headers do not end"),
    "an upgrade": ([b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nxx"], "not HTTP"),
    "cannot be unpacked": (
        [b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 4\r\n" + STREAM + b"\r\nabcd"],
        "cannot be unpacked",
    ),
}


@pytest.mark.parametrize(("pieces", "told"), BAD.values(), ids=BAD)
async def test_a_server_that_misbehaves(pieces, told):
    async with serving(answering(*pieces)) as port:
        with pytest.raises(errors.ModelUnreachable, match=told) as caught:
            await asked(f"http://127.0.0.1:{port}")
    assert caught.value.retryable
    assert "sk-secret" not in str(caught.value)


async def test_a_redirect_is_told_not_followed():
    moved = b"HTTP/1.1 308 Moved\r\nlocation: https://elsewhere.example/v1\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(moved)) as port:
        with pytest.raises(errors.ModelError, match=r"(?s)308.*https://elsewhere\.example/v1") as caught:
            await asked(f"http://127.0.0.1:{port}")
    assert not caught.value.retryable


async def test_three_patiences():
    hanging = asyncio.Event()

    async def silent(reader, writer):
        await request_of(reader)
        await hanging.wait()

    async def faltering(reader, writer):
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n" + STREAM + b"\r\n" + EVENTS[:60])
        await hanging.wait()

    for handle, patience, told in (
        (silent, Timeouts(first_byte=0.05), r"no answer within 0\.05 s \(Timeouts\.first_byte\)$"),
        (faltering, Timeouts(between=0.05), r"no data for 0\.05 s \(Timeouts\.between\)$"),
    ):
        async with serving(handle) as port:
            with pytest.raises(errors.ModelTimeout, match=told) as caught:
                await asked(f"http://127.0.0.1:{port}", timeouts=patience)
            assert caught.value.retryable
            hanging.set()
            hanging.clear()
    async with serving(silent) as port:  # it takes the connection, and never speaks TLS
        with pytest.raises(errors.ModelTimeout, match=r"no connection within 0\.1 s \(Timeouts\.connect\)"):
            await asked(f"https://127.0.0.1:{port}", timeouts=Timeouts(connect=0.1))
        hanging.set()


async def test_time_out_of_a_blocked_event_loop_says_so():
    hanging = asyncio.Event()

    async def silent(reader, writer):
        await request_of(reader)
        asyncio.get_running_loop().call_soon(time.sleep, 1.6)
        await hanging.wait()

    async with serving(silent) as port:
        with pytest.raises(errors.ModelTimeout, match=r"event loop of this program was blocked for 1\.\d s"):
            await asked(f"http://127.0.0.1:{port}", timeouts=Timeouts(first_byte=0.2))
        hanging.set()


async def test_names_that_do_not_exist_and_doors_that_are_closed():
    with pytest.raises(errors.ModelUnreachable, match=r"the host name models\.invalid cannot be resolved: check base_url"):
        await asked("http://models.invalid/v1")
    async with serving(answering()) as port:
        pass
    with pytest.raises(errors.ModelUnreachable, match=f"127.0.0.1:{port}.*cannot be reached"):
        await asked(f"http://127.0.0.1:{port}/v1")
    with pytest.raises(ConfigError, match="begin with http"):
        await asked("localhost:8080/v1")


async def test_connections_are_used_again_and_a_stale_one_is_no_error():
    async with WireServer(lambda _: reply("one")) as server:
        model = OpenAI("any", base_url=server.url, api_key="k")
        for _ in range(3):
            await model.reply(ModelRequest((user("hi"),)), quiet)
        assert server.connections == 1
        await model.close()

    seen = []

    async def closes_after_one(reader, writer):
        """It keeps the connection open, takes the second request in, and closes without a word: a keep-alive that ran out."""
        head, _ = await request_of(reader)
        seen.append(head)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(EVENTS) + STREAM + b"\r\n" + EVENTS)
        await request_of(reader)

    async with serving(closes_after_one) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k")
        for _ in range(3):
            assert (await model.reply(ModelRequest((user("hi"),)), quiet)).message.text == "hello"
        assert len(seen) == 3
        await model.close()


async def test_an_idle_connection_is_closed(monkeypatch):
    monkeypatch.setattr(http, "_IDLE", 0.02)
    ended = asyncio.Event()

    async def handle(reader, writer):
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(EVENTS) + STREAM + b"\r\n" + EVENTS)
        with suppress(ConnectionError):
            await reader.read()
        ended.set()

    async with serving(handle) as port:
        model = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k")
        await model.reply(ModelRequest((user("hi"),)), quiet)
        async with asyncio.timeout(60):
            await ended.wait()
        await model.close()


async def test_a_slow_reader_makes_the_server_wait():
    """20 MB that nobody reads yet do not end up in our memory, and do not count as a silent server."""
    sent = 0

    async def flood(reader, writer):
        nonlocal sent
        await request_of(reader)
        writer.transport.set_write_buffer_limits(high=1 << 16)
        writer.write(b"HTTP/1.1 200 OK\r\n" + STREAM + b"\r\n")
        (event,) = [event for event in reply("h").events if b'"h"' in event]
        piece = b"data: " + event.replace(b'"h"', b'"%s"' % (b"x" * (1 << 16))) + b"\n\n"
        for _ in range(320):
            writer.write(piece)
            await writer.drain()
            sent += len(piece)
        writer.write(EVENTS)

    async with serving(flood) as port:
        model, held = OpenAI("any", base_url=f"http://127.0.0.1:{port}", api_key="k"), []

        async def emit(*_):
            while not held:  # the reader is slow, until the server sends nothing more
                before = sent
                await asyncio.sleep(0.3)
                held.extend([sent] if sent == before else [])

        await model.reply(ModelRequest((user("hi"),)), emit)
        assert held[0] < 12 << 20
        assert sent > 20 << 20
        await model.close()


def test_one_model_over_several_event_loops():
    async def use(model, times):
        return [(await model.reply(ModelRequest((user("hi"),)), quiet)).message.text for _ in range(times)]

    started, stop, place = threading.Event(), None, []

    async def serve():
        nonlocal stop
        stop = asyncio.Event()
        async with WireServer(lambda _: reply("hello")) as server:
            place.extend([server, asyncio.get_running_loop()])
            started.set()
            await stop.wait()

    server_thread = threading.Thread(target=lambda: asyncio.run(serve()))
    server_thread.start()
    started.wait(60)
    model = OpenAI("any", base_url=place[0].url, api_key="k")
    results = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        threads = [threading.Thread(target=lambda: results.append(asyncio.run(use(model, 5)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(3):  # one after another, nothing closed by hand
            results.append(asyncio.run(use(model, 2)))
    assert [len(result) for result in results] == [5, 5, 5, 5, 2, 2, 2]
    assert all(text == "hello" for result in results for text in result)
    place[1].call_soon_threadsafe(stop.set)
    server_thread.join()


# --- certificates and proxies ---


@pytest.fixture
def authority(tmp_path, monkeypatch):
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.issue_cert("localhost", "127.0.0.1", "models.example").configure_cert(context)
    return context, tmp_path / "ca.pem"


WHOLE = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n" % len(EVENTS) + STREAM + b"\r\n" + EVENTS


async def test_a_certificate_of_ones_own_authority(authority, monkeypatch):
    context, file = authority
    async with serving(answering(WHOLE), ssl=context) as port:
        with pytest.raises(errors.ModelUnreachable, match=r"certificate of https://localhost.*not trusted.*SSL_CERT_FILE"):
            await asked(f"https://localhost:{port}")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        forget()
        assert (await asked(f"https://localhost:{port}")).message.text == "hello"

    async def plain(reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async with serving(plain) as port:
        with pytest.raises(errors.ModelUnreachable, match="cannot be reached.*SSL"):
            await asked(f"https://localhost:{port}")


def proxy(seen, *, refuse=b""):
    """A proxy that tunnels (CONNECT) and passes plain requests on."""

    async def pump(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def handle(reader, writer):
        head, body = await request_of(reader)
        seen.append(head)
        if refuse:
            writer.write(refuse)
            return
        method, target = head.split(" ")[:2]
        if method == "CONNECT":
            port = target.rsplit(":", 1)[1]
            there, onward = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            there, onward = await asyncio.open_connection("127.0.0.1", int(target.split("/")[2].rsplit(":", 1)[1]))
            onward.write(head.encode() + body)
        await asyncio.gather(pump(reader, onward), pump(there, writer))

    return handle


@pytest.mark.parametrize("proxy_tls", [False, True])
async def test_through_a_proxy(authority, monkeypatch, proxy_tls):
    context, file = authority
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    seen = []
    more = {"ssl": context} if proxy_tls else {}
    async with (
        serving(answering(WHOLE), ssl=context) as secure,
        serving(answering(WHOLE)) as plain,
        serving(proxy(seen), **more) as middle,
    ):
        address = f"http{'s' if proxy_tls else ''}://me:p%40ss@localhost:{middle}"
        monkeypatch.setenv("https_proxy", address)
        monkeypatch.setenv("http_proxy", address)
        monkeypatch.setenv("no_proxy", "direct.invalid")
        assert (await asked(f"https://models.example:{secure}/v1")).message.text == "hello"
        assert (await asked(f"http://models.example:{plain}/v1")).message.text == "hello"
        assert route_to("http://direct.invalid/v1").proxy is None
    assert seen[0].startswith(f"CONNECT models.example:{secure} HTTP/1.1")
    assert "sk-secret" not in seen[0]
    assert seen[1].startswith(f"POST http://models.example:{plain}/v1/chat/completions HTTP/1.1")
    for head in seen:
        word = next(line for line in head.split("\r\n") if line.startswith("proxy-authorization"))
        assert b64decode(word.split("Basic ")[1]) == b"me:p@ss"


async def test_a_proxy_that_refuses(monkeypatch):
    seen = []
    async with serving(
        proxy(seen, refuse=b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
    ) as middle:
        monkeypatch.setenv("https_proxy", f"http://me:word@127.0.0.1:{middle}")
        with pytest.raises(
            errors.ModelUnreachable, match=r"through the proxy 127\.0\.0\.1: the proxy responded with HTTP 407"
        ) as caught:
            await asked("https://models.example/v1")
        assert "word" not in str(caught.value)
    route_to.cache_clear()
    monkeypatch.setenv("https_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="only http and https proxies"):
        await asked("https://models.example/v1")


async def test_no_header_can_be_smuggled_in():
    with pytest.raises(ConfigError, match="line break"):
        await asked("http://127.0.0.1:1", headers={"x-note": "a\r\nx-evil: 1"})


async def test_many_at_once():
    async with WireServer(lambda body: reply(body["messages"][-1]["content"])) as server:
        model = OpenAI("any", base_url=server.url, api_key="k")
        agent = Agent(model, journal="memory")
        results = await asyncio.gather(*[agent.run(f"number {n}") for n in range(100)])
        assert [result.output for result in results] == [f"number {n}" for n in range(100)]
        before = server.connections
        await asyncio.gather(*[agent.run(f"number {n}") for n in range(100)])
        assert server.connections == before <= 100
        await agent.close()


async def test_an_error_answer_leaves_the_connection_usable():
    async with WireServer([status(500), status(429, retry_after=1), reply("fine")]) as server:
        model = OpenAI("any", base_url=server.url, api_key="k")
        for kind in (errors.ModelUnavailable, errors.RateLimited):
            with pytest.raises(kind):
                await model.reply(ModelRequest((user("hi"),)), quiet)
        assert (await model.reply(ModelRequest((user("hi"),)), quiet)).message.text == "fine"
        assert server.connections == 1
        await model.close()
