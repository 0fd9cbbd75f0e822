"""Files that are broken or hostile: no crash, no hang, little memory, and a cancelled task ends at once."""

import asyncio
import os
import time
from base64 import b64encode
from pathlib import Path

import pytest

from kaname import Media
from kaname.core.errors import AgentError
from kaname.senses import local
from kaname.senses.process import client
from kaname.senses.process.client import SenseError, SenseTimeout, WorkLimits, worker
from kaname.senses.sources import open_source
from tests.parts import until
from tests.properties import nightly

from .files import hostile, picture, sound


@pytest.fixture(autouse=True)
async def _no_processes_left():
    yield
    await client.close_workers()


def processes():
    """The ids of the processes that this one has started for the senses, and that live."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"senses.process.child" in (place / "cmdline").read_bytes():
                found.append(int(place.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def most_memory():
    """The most memory in megabytes that the processes have used."""
    lines = [line for one in processes() for line in Path(f"/proc/{one}/status").read_text().splitlines()]
    return max([0, *[int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM")]])


async def decode(media):
    if media.mime.startswith("image"):
        return await local.fit(media, 2000, 3_000_000)
    if media.mime.startswith("audio"):
        return await local.samples(media, 600)
    return await local.scenes(media, 600) if media.mime.startswith("video") else await local.pdf(media)


@pytest.mark.parametrize("count", [36, *nightly(200)])
async def test_hostile_files_are_refused_or_decoded_within_seconds_and_300_megabytes(count):
    files = hostile(count)
    assert len({content for _, _, content in files}) == count
    outcomes, memory = {}, 0
    for name, mime, content in files:
        started = time.monotonic()
        try:
            await decode(await open_source(Media(mime, b64encode(content).decode(), name=name)))
            outcomes[name] = ""
        except AgentError as problem:
            outcomes[name] = str(problem)
        assert time.monotonic() - started < 90, name  # most of it is the start of a process on a busy machine
        memory = max(memory, most_memory())
    assert memory <= 300
    for name in ("bomb.png", "just-too-large.png", "bomb.gif", "bomb.bmp", "bomb.tiff", "bomb.jpg", "script.svg", "files.svg"):
        assert "cannot be used" in outcomes[name], name
    for name in ("program.png", "archive.jpg", "page.png", "picture.mp3"):
        assert "is not what it claims to be" in outcomes[name]
    after = await local.fit(Media.of(picture("still here")), 2000, 3_000_000)
    assert after.mime == "image/jpeg"


async def test_cancelled_work_ends_and_its_process_is_killed_at_once():
    work = worker("decoding")
    await work.do("describe", [picture("hi")], mime="image/png")
    (process,) = processes()
    task = asyncio.create_task(local.samples(Media.of(sound(120.0, rate=48_000), "audio/wav"), 3000))
    (at_work,) = await until(lambda: [one for one in processes() if one != process])
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes() == [process], "the other one is not concerned"
    assert not Path(f"/proc/{at_work}").exists()


async def test_work_that_takes_too_long_is_ended_and_the_next_one_is_done():
    work = worker("decoding")
    with pytest.raises(SenseTimeout, match="takes longer than 0.001 s"):
        await work.do("describe", [picture("hi")], mime="image/png", seconds=0.001)
    about, _ = await work.do("describe", [picture("hi")], mime="image/png")
    assert about["width"] == 900


async def test_work_that_wants_too_much_memory_is_refused():
    from .files import png

    work = worker("decoding", WorkLimits(30.0, 60_000_000))
    with pytest.raises(SenseError):
        await work.do("raster", [png(6000, 6000, b"\0" * (6000 * 3 + 1) * 6000)], mime="image/png", side=2000)


async def test_process_has_no_network_and_writes_no_files(tmp_path):
    work = worker("decoding")
    await work.do("describe", [picture("hi")], mime="image/png")
    assert work.limits()["network"]
    assert work.limits()["memory"]
    (process,) = processes()
    mine, theirs = (os.readlink(f"/proc/{one}/ns/net") for one in ("self", process))
    assert mine != theirs
    limits = Path(f"/proc/{process}/limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max file size")]
    assert line.split()[3] == "0"


async def test_answer_of_a_broken_process_is_not_trusted():
    from kaname.senses.process import frames

    for broken in (b"", b"{}", b"[1]", b'{"_": [-1]}', b'{"_": [9999999999]}', b'{"_": "x"}'):
        with pytest.raises(frames.BadFrame):
            frames.parse(broken, 1)
    with pytest.raises(frames.BadFrame):
        frames.sizes(b"\xff" * 8)


def test_processes_end_with_the_event_loop():
    async def work():
        await worker("decoding").do("describe", [picture("hi")], mime="image/png")
        return processes()[0]

    process = asyncio.run(work())
    assert not Path(f"/proc/{process}").exists()


async def test_picture_that_cannot_be_scaled_down_is_refused_before_the_run():
    from kaname import Agent, ConfigError, ScriptedModel

    from .files import png

    with pytest.raises(ConfigError, match="cannot be scaled down"):
        await Agent(ScriptedModel(["no"])).run(["look", Media.of(png(20_000, 20_000, b""), name="bomb.png")])


async def test_step_of_an_edit_that_is_wrong_is_named_and_a_picture_has_no_sound():
    photo = Media.of(picture("hi"))
    for step in ({"do": "rotate"}, {"do": "crop", "box": [1]}, "crop"):
        with pytest.raises(SenseError, match="is not complete or has a wrong value"):
            await local.edit(photo, [step])
    with pytest.raises(SenseError, match="a picture has no sound"):
        await local.samples(photo, 60)


def test_process_reads_no_files_of_the_user_and_starts_no_programs(tmp_path):
    import subprocess
    import sys

    (tmp_path / "secret.txt").write_text("secret")
    tried = f"""
import os, sys
from kaname.senses.process import limits
held = limits.hold_down(100_000_000, writes=False)
if not held["files"]:
    sys.exit(77)
import wave  # Python's own files can be read
for attempt in (lambda: open({str(tmp_path / "secret.txt")!r}), lambda: os.listdir("/"), lambda: os.execv("/bin/sh", ["sh"])):
    try:
        attempt()
    except PermissionError:
        continue
    sys.exit(1)
assert limits.memory_used() > 0
"""
    done = subprocess.run([sys.executable, "-c", tried], check=False)
    if done.returncode == 77:
        pytest.skip("this system has no Landlock: files were NOT kept from the process")
    assert done.returncode == 0
