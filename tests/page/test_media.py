"""Pictures and files on the page: attached, dropped or pasted, and shown in the conversation."""

from __future__ import annotations

import zlib
from base64 import b64encode
from hashlib import sha256

import pytest

from kaname.core.events import ModelReplied, Opened, Received, Stopped
from kaname.core.messages import Media, Message, ModelReply, Text, user
from kaname.core.steps import CallModel, Stop
from tests.page.test_chat import ask
from tests.page.writing import write_runs

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


def dot():
    def chunk(kind, data):
        return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)

    head = (8).to_bytes(4) + (8).to_bytes(4) + b"\x08\x02\0\0\0"
    rows = zlib.compress((b"\0" + b"\xff\0\0" * 8) * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def test_attached_picture_is_sent_and_shown_and_the_facts_hold_only_its_hash(go, api):
    page, sent = go("#/chat"), []
    page.on("request", lambda one: sent.append((one.url.partition("/api/")[2], one.post_data_buffer or b"")))
    page.locator("input[type=file]").set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": dot()})
    expect(page.locator(".attached")).to_contain_text("dot.png")
    ask(page, "something long", "travel")
    picture = page.locator(".mine .medium img")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.decode().then(() => one.naturalWidth)") == 8
    expect(page.locator(".attached")).to_have_count(0)
    assert [one for one, _ in sent if one.startswith("media")] == ["media?name=dot.png"]
    assert [one for one in sent if b"base64" in one[1]] == []
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".chip", has_text="cancelled").first).to_be_visible()
    (run,) = [one for one in api.get("/api/runs").json()["runs"] if one["title"] == "something long"]
    facts = api.get(f"/api/runs/{run['run_id']}/facts")
    assert "iVBOR" not in facts.text
    (part,) = [one for one in facts.json()["facts"][1]["body"]["message"]["parts"] if one["type"] == "media"]
    assert part["hash"] == sha256(dot()).hexdigest()
    answer = api.get(f"/api/runs/{run['run_id']}/media/{part['hash']}")
    assert answer.content == dot()
    assert answer.headers["content-type"] == "image/png"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert api.get(f"/api/runs/{run['run_id']}/media/{'0' * 64}").status_code == 404


@pytest.mark.nightly
def test_file_is_dropped_on_the_message_and_can_be_taken_away(go):
    page = go("#/chat")
    page.locator("form.ask").evaluate(
        """form => {
            const moved = new DataTransfer();
            moved.items.add(new File(["hello"], "notes.txt", { type: "text/plain" }));
            form.dispatchEvent(new DragEvent("drop", { dataTransfer: moved, bubbles: true, cancelable: true }));
        }"""
    )
    expect(page.locator(".attached")).to_contain_text("notes.txt")
    page.get_by_role("button", name="Remove notes.txt").click()
    expect(page.locator(".attached")).to_have_count(0)


def test_file_that_is_not_what_it_claims_to_be_is_refused_with_the_reason(go, tab):
    page = go("#/chat")
    page.locator("input[type=file]").set_input_files(
        {"name": "photo.png", "mimeType": "image/png", "buffer": b"\x7fELF" + bytes(50)}
    )
    ask(page, "look at this", "travel")
    expect(page.get_by_text("is not what it claims to be")).to_be_visible()
    tab.wrong.clear()  # the browser tells of the status 400


@pytest.mark.nightly
@pytest.mark.parametrize("address", ["#/chat/drawn", "#/runs/drawn"])
def test_a_picture_that_the_model_made_is_shown_in_the_conversation_and_in_the_run(go, served, api, address):
    if "drawn" not in [one["run_id"] for one in api.get("/api/runs").json()["runs"]]:
        made = Message("assistant", (Text("Here it is."), Media("image/png", b64encode(dot()).decode())))
        reply = ModelReply(made, "end_turn", model="m", served="m-2026", request_id="req_9")
        facts = [Opened(), Received(user("Draw a dot.")), ModelReplied(reply, CallModel()), Stopped(Stop("completed"), "Done.")]
        write_runs(served.folder, {"drawn": facts})
    page = go(address)
    picture = page.locator(".medium img")
    expect(picture).to_be_visible()
    assert picture.evaluate("one => one.decode().then(() => one.naturalWidth)") == 8
    if address.startswith("#/runs"):
        expect(page.locator("p.note[title=req_9]")).to_contain_text("m-2026")
