"""The inbox, by keyboard alone: approve, edit the arguments, refuse with a reason."""

from __future__ import annotations

import json

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


def test_the_inbox_is_done_by_keyboard(go, api, served):
    for number in range(3):
        api.post("/api/runs", json={"input": f"Kyoto trip {number}", "agent": "travel"})
    page = go("#/runs")
    expect(page.locator("nav .count")).to_have_text("3")
    page.keyboard.press("g")
    page.keyboard.press("i")
    expect(page.locator(".inbox > li")).to_have_count(3)
    expect(page.locator(".inbox > li").first).to_contain_text("Kyoto trip 0")
    page.keyboard.press("y")
    page.wait_for_timeout(300)
    expect(page.locator(".inbox > li")).to_have_count(3)  # nothing was chosen, nothing is approved
    page.keyboard.press("j")
    expect(page.locator(".inbox > li").first).to_contain_text("It cannot be undone.")
    page.keyboard.press("y")
    expect(page.locator(".inbox > li")).to_have_count(2)
    page.keyboard.press("y")
    page.keyboard.press("j")
    page.keyboard.press("e")
    field = page.get_by_label("Arguments, as JSON")
    expect(field).to_be_focused()
    assert json.loads(field.input_value()) == {"hotel": "Hotel Higashi", "nights": 2, "price": 84000}
    page.keyboard.press("Control+a")
    page.keyboard.type('{"hotel": "Ryokan Umi", "nights": 1')
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("This is not JSON")
    page.keyboard.type(', "price": 96000}')
    page.keyboard.press("Control+Enter")
    expect(page.locator(".inbox > li")).to_have_count(1)
    page.keyboard.press("j")
    page.keyboard.press("n")
    expect(page.get_by_label("Reason")).to_be_focused()
    page.keyboard.type("we stay at home")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("No open questions")).to_be_visible()
    expect(page.locator("nav .count")).to_have_count(0)
    booked = (served.folder / "booked.txt").read_text("utf-8").splitlines()
    assert booked == ["Hotel Higashi 2 84000", "Ryokan Umi 1 96000"], "as approved, as edited, and the third not at all"
    refused = next(run for run in api.get("/api/runs").json()["runs"] if run["title"] == "Kyoto trip 2")
    facts = json.dumps(api.get(f"/api/runs/{refused['run_id']}/facts").json())
    assert "we stay at home" in facts


@pytest.mark.nightly
def test_calls_in_the_outbox_are_shown_line_by_line_and_allowed_by_number(go, api, served):
    api.post("/api/runs", json={"input": "What is new?", "agent": "mail"})
    page = go("#/inbox")
    prompt = page.locator(".question .prompt")
    expect(prompt).to_contain_text("mallory@evil.example")
    lines = prompt.inner_text().splitlines()
    assert [line for line in lines if "forward" in line] == ["1. forward", "2. forward", "3. forward"]
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.keyboard.type("all but the first")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Enter numbers only.")
    page.keyboard.press("Control+a")
    page.keyboard.type("2、３")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("No open questions")).to_be_visible()
    run = next(run for run in api.get("/api/runs").json()["runs"] if run["title"] == "What is new?")
    api.get(f"/api/runs/{run['run_id']}/events")  # ends with the run
    assert (served.folder / "forwarded.txt").read_text("utf-8").split() == ["boss@work.example", "ann@home.example"]


@pytest.mark.nightly
def test_what_is_typed_on_when_a_question_was_answered_elsewhere_answers_nothing(go, api, served):
    for number in range(2):
        api.post("/api/runs", json={"input": f"Kyoto, typed on {number}", "agent": "travel"})
    page = go("#/inbox")
    expect(page.locator(".inbox > li")).to_have_count(2)
    page.keyboard.press("j")
    page.keyboard.press("n")
    expect(page.get_by_label("Reason")).to_be_focused()
    first = api.get("/api/questions").json()["questions"][-1]
    api.post(f"/api/runs/{first['run']['run_id']}/answers", json={"answers": {first["key"]: "no"}, "mode": "wait"})
    expect(page.locator(".inbox > li")).to_have_count(1)
    expect(page.get_by_text("Answered elsewhere. Press ↓")).to_be_visible()
    page.wait_for_timeout(1600)  # also after a pause for thought
    page.keyboard.type("just say yes")
    page.wait_for_timeout(300)
    expect(page.locator(".inbox > li")).to_have_count(1)
    expect(page.locator(".inbox > li.chosen")).to_have_count(0)
    page.keyboard.press("ArrowDown")
    expect(page.locator(".inbox > li.chosen")).to_have_count(1)
    page.get_by_role("button", name="Refuse").click()
    page.get_by_role("button", name="Refuse").click()
    expect(page.get_by_text("No open questions")).to_be_visible()


@pytest.mark.nightly
def test_a_question_asked_while_the_inbox_is_open_appears_by_itself(go, api):
    page = go("#/inbox")
    expect(page.get_by_text("No open questions")).to_be_visible()
    api.post("/api/runs", json={"input": "Kyoto later", "agent": "travel"})
    expect(page.locator(".inbox > li")).to_contain_text("Kyoto later")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("No open questions")).to_be_visible()


@pytest.mark.nightly
def test_refusal_is_a_refusal_whatever_its_reason_says(go, api, served):
    api.post("/api/runs", json={"input": "Kyoto trip", "agent": "travel"})
    page = go("#/inbox")
    before = (served.folder / "booked.txt").read_text("utf-8") if (served.folder / "booked.txt").exists() else ""
    page.get_by_role("button", name="Refuse").click()
    page.get_by_label("Reason").fill("yes")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("No open questions")).to_be_visible()
    after = (served.folder / "booked.txt").read_text("utf-8") if (served.folder / "booked.txt").exists() else ""
    assert after == before


def test_question_shows_characters_that_hide_or_reorder_others(go, api):
    run = api.post("/api/runs", json={"input": "Kyoto trip", "agent": "travel"}).json()["run_id"]
    page = go("#/inbox")
    page.wait_for_selector(".inbox > li")
    shown = page.evaluate(
        """async () => {
            const { visible, callText: called, value } = await import("/page/format.js");
            const hidden = "\\u202e\\u200b\\u2066\\u0007\\ufeff\\u3164\\udb40\\udc41";
            return [visible(`a${hidden}b`), value(hidden), called("pay", { to: hidden }), visible("日本語　です\\n葛\\u{e0100}❤\\ufe0f")];
        }"""
    )
    assert shown[0] == "a\\u202e\\u200b\\u2066\\u0007\\ufeff\\u3164\\udb40\\udc41b"
    assert "\u202e" not in shown[1] + shown[2]
    assert shown[3] == "日本語　です\n葛\U000e0100❤\ufe0f"
    api.post(f"/api/runs/{run}/stop", json={})


@pytest.mark.nightly
def test_a_call_that_is_always_allowed_is_not_asked_about_until_that_is_revoked(go, api):
    def trip():
        return api.post("/api/runs", json={"input": "Kyoto, always", "agent": "travel"}).json()

    run = trip()
    page = go(f"#/chat/{run['run_id']}")
    page.get_by_role("button", name="Always …").click()
    field = page.get_by_label("Allow this and later calls where")
    conditions = json.loads(field.input_value())
    assert conditions["price"] == {"equals": 84000}
    assert conditions["*"] == sorted({*conditions} - {"*"})  # other arguments would be another call
    field.fill(json.dumps({"price": {"at_most": 90000}}))
    page.get_by_role("button", name="Always allow").click()
    expect(page.locator(".prose table")).to_contain_text("Ryokan Umi")
    assert trip()["status"] == "completed"
    page = go("#/inbox")
    expect(page.locator(".approvals")).to_contain_text('book_hotel {"price": {"at_most": 90000}}')
    page.get_by_role("button", name="Revoke").click()
    expect(page.locator(".approvals")).to_have_count(0)
    assert trip()["status"] == "waiting"


@pytest.mark.nightly
def test_question_shows_what_will_happen_when_it_expires_and_who_must_answer(go, served):
    from time import time

    from kaname.core.events import Asked, ModelReplied, Opened, Received
    from kaname.core.messages import Message, ModelReply, ToolCall, user
    from kaname.core.notices import notice
    from kaname.core.steps import CallModel

    from .writing import write_runs

    call = ToolCall("c1_0", "book_hotel", {"price": 1})
    reply = ModelReplied(ModelReply(Message("assistant", (call,)), "tool_use"), CallModel())
    prompt = notice("approve.describes", "{does}\nRun {asked}?", does="Books the inn for 1 yen", asked="book_hotel(…)")
    asked = Asked("approve:c1_0", prompt, ("yes", "no"), "c1_0", about=call, by="other", until=time() + 86400)
    write_runs(served.folder, {"expiring": [Opened(), Received(user("a trip that expires")), reply, asked]})
    page = go("#/inbox")
    question = page.locator(".inbox > li", has_text="a trip that expires")
    expect(question).to_contain_text("Books the inn for 1 yen")
    expect(question).to_contain_text("Another person than the user must answer.")
    expect(question).to_contain_text("Expires: ")
