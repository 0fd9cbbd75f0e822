"""Media that come into a run: checked by their content, and told in words to models that cannot see or hear."""

import asyncio
import contextlib
import ipaddress
import os
import socket
from base64 import b64encode

import pytest

from kaname import Agent, ConfigError, Guardrails, Media, ScriptedModel, call, tool
from kaname.core.messages import Message, ModelReply, ModelRequest, Text, ToolResult, assistant, user
from kaname.core.reading.media_types import checked_type, type_of
from kaname.kernel.bases import ModelBase, ModelInfo
from kaname.models.media import as_takeable, seen_by
from kaname.senses import entry, sources
from kaname.senses.process.client import SenseError
from kaname.senses.sources import fetch, open_source

PNG, WAV = b"\x89PNG\r\n\x1a\n" + bytes(40), b"RIFF\x24\0\0\0WAVEfmt " + bytes(40)


def media(content=PNG, mime="image/png", name="photo.png"):
    return Media(mime, b64encode(content).decode(), name=name)


@pytest.mark.parametrize(
    ("content", "name", "mime"),
    [
        (PNG, "photo.png", "image/png"),
        (PNG, "photo.jpg", "image/png"),  # the content decides between pictures
        (PNG, "", "image/png"),
        (WAV, "a.wav", "audio/wav"),
        (b"\xff\xfb\x90\x44" + bytes(40), "a.mp3", "audio/mpeg"),
        (b"OggS" + bytes(40), "a.ogg", "audio/ogg"),
        (b"\0\0\0\x18ftypM4A " + bytes(40), "a.m4a", "audio/mp4"),
        (b"PK\x03\x04" + bytes(40), "a.docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
        ("こんにちは".encode(), "a.txt", "text/plain"),
        (b"a,b\n1,2\n", "a.csv", "text/csv"),
        (b'<svg xmlns="x"/>', "a.svg", "image/svg+xml"),
    ],
)
def test_type_follows_from_the_content(content, name, mime):
    assert checked_type(content, name) == mime


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"\x7fELF" + bytes(40), "photo.jpg"),
        (b"PK\x03\x04" + bytes(40), "photo.jpg"),
        (b"<html><script>1</script>", "photo.png"),
        (b"just text", "photo.png"),
        (PNG, "song.mp3"),
        (PNG, "notes.txt"),
        (WAV, "photo.png"),
        (b"MZ" + bytes(40), "report.pdf"),
        (b"<svg/>", "photo.png"),
        (b"%PDF-1.7", "photo.gif"),
    ],
)
async def test_file_that_contradicts_its_name_is_refused_before_the_run(content, name, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match="is not what it claims to be"):
        Media.file(tmp_path / name)
    agent = Agent(ScriptedModel(["hi"]), journal="memory")
    kind = {"jpg": "image/jpeg", "png": "image/png", "gif": "image/gif", "mp3": "audio/mpeg", "txt": "text/plain"}
    mime = kind.get(name.rpartition(".")[2], "application/pdf")
    with pytest.raises(ConfigError, match="was not accepted"):
        await agent.run(["look", media(content, mime, name)])
    assert not await agent.journal.runs()


def test_first_bytes_of_random_data_are_no_type():
    assert type_of(b"hello") == type_of(b"") == ""


class Blind(ModelBase):
    """A model that reads only text, and keeps what it is sent."""

    name, about = "blind", ModelInfo(takes=())

    def __init__(self, *replies):
        self.replies, self.seen = list(replies), []

    async def reply(self, request, emit):
        self.seen.append(seen_by(request, self.about.takes))
        said = self.replies.pop(0) if self.replies else "ok"
        return ModelReply(assistant("", said) if not isinstance(said, str) else assistant(said), None)


async def test_blind_model_gets_the_text_of_a_picture_and_is_told_so(monkeypatch):
    async def read(one, user):
        return "Total: 42 yen"

    monkeypatch.setattr(entry, "text_of", read)
    model = Blind()
    agent = Agent(model, journal="memory")
    result = await agent.run(["How much?", media()])
    (message,) = model.seen[0].messages
    assert all(isinstance(part, Text) for part in message.parts)
    assert "[image/png photo.png: not shown, for this model takes none]" in message.text
    assert "[You cannot see pictures. A program has read photo.png:]\nTotal: 42 yen\n" in message.text
    assert result.state.messages[0].parts[1] == media()  # recorded with its text: a resumed run needs no second look
    assert "42 yen" in result.state.messages[0].text


async def test_text_of_a_picture_passes_the_guardrails_like_other_words_of_the_user(monkeypatch):
    async def read(one, user):
        return "my password is hunter2"

    monkeypatch.setattr(entry, "text_of", read)
    model = Blind()
    agent = Agent(model, journal="memory", policies=[Guardrails(blocked_patterns=["hunter2"])])
    result = await agent.run(["look", media()])
    assert result.stop.kind == "blocked"
    assert not model.seen


async def test_blind_model_gets_the_text_of_a_picture_that_a_tool_returns(monkeypatch):
    async def read(one, user):
        return "in the chart: 7"

    monkeypatch.setattr(entry, "text_of", read)

    @tool(effect="pure")
    def look() -> Media:
        """Look."""
        return media()

    model = Blind(call("look"), "done")
    result = await Agent(model, [look], journal="memory").run("go")
    assert result.output == "done"
    (answer,) = [part for message in model.seen[1].messages for part in message.parts if isinstance(part, ToolResult)]
    assert "in the chart: 7" in answer.output
    assert not answer.media


async def test_model_that_sees_gets_the_picture_itself(monkeypatch):
    async def read(one, user):
        raise AssertionError("nobody needs it")

    monkeypatch.setattr(entry, "text_of", read)
    model = Blind()
    model.about = ModelInfo(takes=("image/",))
    await Agent(model, journal="memory").run(["look", media()])
    assert model.seen[0].messages[0].parts[1] == media()


def test_medium_without_text_is_named():
    assert as_takeable(media(), ()).text == "[image/png photo.png: not shown, for this model takes none]"
    assert "no longer stored" in as_takeable(Media("image/png", name="x.png"), ("image/",)).text
    plain = ModelRequest((user("hi"),))
    assert seen_by(plain, ()) is plain
    both = seen_by(ModelRequest((Message("user", (Text("a"), media(WAV, "audio/wav", "a.wav"))),)), ())
    assert "a.wav: not shown" in both.messages[0].text


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/x.png",
        "http://localhost/x.png",
        "http://[::1]/x.png",
        "http://10.0.0.1/x",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0/x",
        "http://[::ffff:127.0.0.1]/x",
        "http://user:pass@example.com/x",
    ],
)
def test_address_of_this_machine_or_a_private_network_is_not_fetched(url):
    with pytest.raises(SenseError, match="not a public address|not a plain http address"):
        fetch(url)


async def test_redirect_to_a_private_address_is_not_followed(monkeypatch):
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Redirects(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("location", "http://127.0.0.1:1/secret")
            self.end_headers()

        def log_message(self, *given):
            pass

    server = HTTPServer(("127.0.0.1", 0), Redirects)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    real = socket.getaddrinfo

    def resolve(host, port, *given, **more):  # the first name is taken for a public one
        return [(2, 1, 6, "", ("93.184.216.34", port))] if host == "public.example" else real(host, port, *given, **more)

    connect = socket.create_connection
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", lambda address, **more: connect(("127.0.0.1", server.server_port), **more))
    with pytest.raises(SenseError, match=r"127\.0\.0\.1 is not a public address"):
        await open_source("http://public.example/x.png")
    server.shutdown()
    server.server_close()


def test_files_and_sounds_of_the_openai_shape_become_media():
    from kaname.core.openai_shape import from_openai

    data = media().data
    parts = [
        {"type": "text", "text": "look"},
        {"type": "file", "file": {"filename": "photo.png", "file_data": f"data:image/png;base64,{data}"}},
        {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
    ]
    made = from_openai({"role": "user", "content": parts}).parts
    assert made[1] == media()
    assert (made[2].mime, made[2].data) == ("audio/wav", "UklGRg==")
    assert made[3].mime == "image/png"
    with pytest.raises(ConfigError, match="not supported"):
        from_openai({"role": "user", "content": [{"type": "file", "file": {"file_data": "http://10.0.0.1/x"}}]})


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda place: os.symlink("/dev/zero", place)])
async def test_pipe_folder_or_device_is_refused_at_once(make, tmp_path):
    make(tmp_path / "photo.png")
    for open_it in (open_source(tmp_path / "photo.png"), asyncio.to_thread(Media.file, tmp_path / "photo.png")):
        with pytest.raises((ConfigError, ValueError, IsADirectoryError)):
            async with asyncio.timeout(30):
                await open_it


async def test_empty_file_is_refused(tmp_path):
    (tmp_path / "photo.png").touch()
    with pytest.raises(ConfigError, match="photo.png is empty"):
        await open_source(tmp_path / "photo.png")
    with pytest.raises(ConfigError, match="photo.png is empty"):
        await Agent(ScriptedModel(["no"])).run(["look", Media.file(tmp_path / "photo.png")])


async def test_file_larger_than_the_limit_is_not_read_to_its_end(tmp_path):
    with (tmp_path / "long.bin").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="larger than"):
        await open_source(tmp_path / "long.bin", most=1000)


def test_server_that_never_ends_is_given_up(monkeypatch):
    import threading

    server, given_up = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def drip():
        one, _ = server.accept()
        with one, contextlib.suppress(OSError):
            one.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: image/png\r\n\r\n" + PNG)
            while not given_up.wait(0.05):
                one.sendall(b"x")

    threading.Thread(target=drip, daemon=True).start()
    connect = socket.create_connection
    monkeypatch.setattr(sources, "public_address", lambda host, port: ("192.0.2.1", port))
    monkeypatch.setattr(socket, "create_connection", lambda address, **more: connect(server.getsockname(), **more))
    monkeypatch.setattr(sources, "_LONGEST", 0.5)
    with pytest.raises(SenseError, match="cannot be reached: it takes longer than"):
        fetch("http://public.example/photo.png")
    given_up.set()
    server.close()


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",  # NAT64 of 127.0.0.1
        "64:ff9b::a9fe:a9fe",  # of 169.254.169.254
        "64:ff9b:1::808:808",  # NAT64 of a network of its own
        "2002:7f00:1::",  # 6to4 of 127.0.0.1
        "2002:a00:1::1",  # of 10.0.0.1
        "2002:808:808::1",  # of 8.8.8.8: newer versions of Python do not count it as public
        "::10.0.0.1",
        "2001:0:4136:e378:8000:63bf:80ff:fffe",  # Teredo
        "fd00::1",
    ],
)
async def test_address_that_leads_to_a_private_one_is_not_fetched(address):
    with pytest.raises(SenseError, match="is not a public address"):
        await open_source(f"http://[{address}]/x.png")


@pytest.mark.parametrize("address", ["8.8.8.8", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700:4700::1111"])
def test_address_that_leads_to_a_public_one_is_public(address):
    assert sources.public_address(address, 80) == (str(ipaddress.ip_address(address)), 80) or address.startswith("::ffff")


async def test_title_of_a_session_is_what_the_user_wrote_or_the_name_of_the_file():
    titles = []
    for given in (["What is this?", media(b"a note", "text/plain", "note.txt")], [media(b"a note", "text/plain", "note.txt")]):
        agent = Agent(Blind("a note"), journal="memory")
        result = await agent.run(given)
        assert "You cannot" in result.state.messages[0].text  # the model is told
        assert result.state.said[0].own_text in ("", "What is this?")  # it is not what the user said
        titles += [card.title for card in await agent.journal.runs()]
    assert titles == ["What is this?", "note.txt"]
