"""A run in a real browser: its story, time travel, forks, comparison, and the test that is made of it."""

from __future__ import annotations

import sys

import pytest

from tests import warm
from tests.serve.serving import ROOT, events

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


@pytest.fixture(scope="module")
def kyoto(served):
    """A run that has searched, asked a child, booked after a yes, and answered."""
    from tests.serve.serving import client

    with client(served) as api:
        run = api.post("/api/runs", json={"input": "Kyoto for four", "agent": "travel"}).json()
        (question,) = run["questions"]
        api.post(f"/api/runs/{run['run_id']}/answers", json={"answers": {question["key"]: "yes"}, "mode": "wait"})
        return run["run_id"]


def test_a_run_tells_its_story_with_lanes_costs_and_its_child(go, kyoto):
    page = go(f"#/runs/{kyoto}")
    expect(page.get_by_role("heading", level=1)).to_have_text("Kyoto for four")
    lanes = page.locator(".lanes .who")
    expect(lanes).to_have_text(["travel", "search_hotels", "search_trains", "ask_researcher", "book_hotel"])
    story = page.get_by_role("region", name="Story")
    expect(story).to_contain_text('search_hotels(city="Kyoto", nights=2, guests=4)')
    expect(story).to_contain_text("in parallel")
    expect(story.locator(".child")).to_contain_text("researcher")
    expect(page.locator(".meta").first).to_contain_text("4 model calls")
    expect(page.locator("header .chip")).to_contain_text("completed")
    page.get_by_role("button", name="all").first.click()
    expect(page.locator(".fact").first).to_contain_text("Opened")
    page.locator(".fact").nth(1).click()
    expect(page.locator(".fact pre")).to_contain_text('"type": "Received"')


@pytest.mark.nightly
def test_time_travel_shows_what_was_known_at_a_fact_and_has_an_address(go, kyoto, tab):
    page = go(f"#/runs/{kyoto}?at=5")
    expect(page.get_by_role("status").filter(has_text="at fact 5")).to_be_visible()
    beside = page.get_by_role("heading", name="At fact 5").locator("..")
    expect(beside).to_contain_text("search_hotels, search_trains")
    expect(page.get_by_role("region", name="Story")).not_to_contain_text("6 hotels")
    for _ in range(2):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("region", name="Story")).to_contain_text("6 hotels")
    assert page.url.endswith("at=7")
    page.keyboard.press("End")
    expect(page.get_by_role("region", name="Story")).to_contain_text("Ryokan Umi")


def numbered(page, rows, text):
    """The numbers of the rows, and what stands in them."""
    return page.evaluate(
        """([rows, text]) => [...document.querySelectorAll(rows)].map(row =>
            [Number(row.querySelector(":scope > .seq").textContent), row.querySelector(text).textContent])""",
        [rows, text],
    )


@pytest.mark.nightly
def test_story_and_comparison_tell_each_thing_at_its_own_fact_and_in_order(go, kyoto, api):
    facts = api.get(f"/api/runs/{kyoto}/facts").json()["facts"]
    asked, answered = [fact["seq"] for fact in facts if fact["type"] in ("Asked", "Answered")]
    booked = next(fact["seq"] for fact in facts if "booked:" in str(fact["body"]))
    assert asked < answered < booked
    page = go(f"#/runs/{kyoto}")
    expect(page.locator(".is-result")).to_contain_text("booked:")
    story = numbered(page, ".item", ".what")
    assert [number for number, _ in story] == sorted([number for number, _ in story])
    assert [number for number, text in story if "booked:" in text] == [booked]
    assert [number for number, text in story if text.startswith("! yes")] == [answered]
    hotels = next(fact["seq"] for fact in facts if fact["type"] == "ToolFinished")
    expect(page.locator(".ret", has_text="6 hotels").get_by_role("link", name=f"fact {hotels}")).to_be_visible()
    page = go(f"#/compare/{kyoto}/{kyoto}")
    expect(page.locator(".verdict")).to_contain_text("The two runs do not differ.")
    rows = numbered(page, ".pair > .left", "span")
    assert [number for number, text in rows if text[0] in "?!"] == [asked, answered]
    assert [number for number, text in rows if "booked:" in text] == [booked]
    assert [text[0] for number, text in rows if number > 8 and text[0] in "→?!←"] == list("→←→?!←")


@pytest.mark.nightly
def test_facts_say_the_same_from_wherever_they_are_read(kyoto, api):
    whole = api.get(f"/api/runs/{kyoto}/facts").json()["facts"]
    assert [fact["seq"] for fact in whole if fact.get("apart")] == [17]
    for after in (5, 9, 12, 14, 16):
        assert api.get(f"/api/runs/{kyoto}/facts?after={after}").json()["facts"] == whole[after:]
        with api.stream("GET", f"/api/runs/{kyoto}/facts?after={after}", headers={"accept": "text/event-stream"}) as answer:
            live = [one["data"] for one in events(answer.iter_lines()) if one["event"] == "fact"]
        assert live == whole[after:]


def test_a_task_that_waits_for_a_person_says_so_everywhere(go, served):
    from kaname.core.events import Asked, Opened, Received, ToolStarted
    from kaname.core.messages import ToolCall, user

    from .writing import write_runs

    graph = [
        {"name": "confirm", "tool": "ask_person", "after": []},
        {"name": "ship", "tool": "add", "after": ["confirm"]},
    ]
    question = ToolCall("confirm", "ask_person", {"question": "Ship it?"})
    facts = [
        Opened(recipe={"graph": graph}),
        Received(user("{}")),
        ToolStarted(question),
        Asked("k", "Ship it?", ("yes", "no"), "confirm"),
    ]
    write_runs(served.folder, {"asking": facts}, agent="shopping")
    page = go("#/runs/asking")
    expect(page.locator(".a-call .ret")).to_have_text("◆ waiting for an answer")
    expect(page.get_by_role("button", name="◆ confirm · ask_person · waiting")).to_be_visible()
    expect(page.locator(".bar")).to_have_class("bar asked")
    expect(page.get_by_text("running")).to_have_count(0)


@pytest.mark.nightly
def test_a_plan_is_drawn_with_the_state_of_its_steps_also_after_one_that_could_not_be_read(go, served):
    import json

    from kaname.core.events import ModelReplied, Opened, Received, ToolFinished, ToolStarted
    from kaname.core.messages import Message, ModelReply, Text, ToolCall, ToolResult, user
    from kaname.core.steps import CallModel

    from .writing import write_runs

    def replied(text):
        return ModelReplied(ModelReply(Message("assistant", (Text(text),)), "end_turn"), CallModel())

    steps = [{"tool_name": "add", "name": name, "arguments": {"a": given}} for name, given in (("one", 1), ("two", "${one}"))]
    begun, done = (
        ToolStarted(ToolCall("plan2.one", "add", {"a": 1})),
        ToolFinished(ToolResult(1, call_id="plan2.one", name="add")),
    )
    plan = replied(json.dumps({"description": "d", "steps": steps}))
    opened = Opened(recipe={"strategy": "Orchestrate"})
    write_runs(served.folder, {"planned": [opened, Received(user("do it")), replied("no plan"), plan, begun, done]})
    page = go("#/runs/planned")
    for told in ("● one · add · done", "○ two · add · not started"):
        expect(page.get_by_role("button", name=told)).to_be_visible()
    expect(page.get_by_role("list", name="Plan").get_by_role("listitem")).to_have_text(["✓ one", "○ two"])
    page = go("#/chat/planned")
    expect(page.get_by_role("list", name="Plan").get_by_role("listitem")).to_have_text(["✓ one", "○ two"])


@pytest.mark.nightly
def test_a_fork_with_another_result_is_compared_with_the_first(go, kyoto, api):
    page = go(f"#/runs/{kyoto}")
    page.get_by_role("button", name="another result").first.click()
    dialog = page.get_by_role("dialog")
    field = dialog.get_by_label('Result of search_hotels(city="Kyoto"')
    expect(field).to_be_focused()
    expect(field).to_have_value("6 hotels, ¥62,000–¥148,000")
    expect(dialog.get_by_label("search_trains(")).to_have_value("keep")
    page.keyboard.type("no hotel is free")
    dialog.get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("heading", name="Related runs").locator("..")).to_contain_text("forked from")
    expect(page.get_by_role("region", name="Story")).to_contain_text("no hotel is free")
    expect(page.locator(".item.is-given").first).to_contain_text("result supplied for")
    expect(page.locator(".item.earlier", has_text="search_trains")).not_to_contain_text("try 2")
    page.get_by_role("link", name="compare").click()
    expect(page.locator(".verdict")).to_contain_text("First difference at fact")
    first = page.locator(".pair .first")
    expect(first.first).to_contain_text("6 hotels")
    expect(first.last).to_contain_text("no hotel is free")
    assert page.locator(".pair .same").count() >= 4


def test_a_fork_with_other_words_goes_on_from_the_fact_under_the_cursor(go, kyoto):
    page = go(f"#/runs/{kyoto}?at=4")
    expect(page.get_by_role("status").filter(has_text="fact 4")).to_be_visible()
    page.keyboard.press("f")
    page.get_by_label("Send another message").fill("weather in Nara instead")
    page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("region", name="Story")).to_contain_text("It is sunny")
    expect(page.locator(".item.earlier").first).to_contain_text("Kyoto for four")


@pytest.mark.nightly
def test_a_fork_on_another_model_shows_what_that_one_would_have_said(go, api, tmp_path):
    run = api.post("/api/runs", json={"input": "weather in Nara", "agent": "travel"}).json()["run_id"]
    (tmp_path / "other.jsonl").write_text(recorded_reply("rain, says the other model"))
    page = go(f"#/runs/{run}?at=2")
    expect(page.get_by_role("status").filter(has_text="fact 2")).to_be_visible()
    page.get_by_role("button", name="Fork from 2").click()
    page.get_by_label("Another model").fill(f"replay/{tmp_path / 'other.jsonl'}")
    page.get_by_role("dialog").get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("region", name="Story")).to_contain_text("rain, says the other model")


def recorded_reply(text):
    """A recording with one reply, as a model that follows recordings takes it."""
    from kaname.core.codec import encode
    from kaname.core.events import Event, ModelReplied, Opened, Received, Stopped
    from kaname.core.messages import Message, ModelReply, Text, user
    from kaname.core.steps import CallModel, Stop

    reply = ModelReplied(ModelReply(Message("assistant", (Text(text),)), "end_turn"), CallModel())
    bodies = [Opened(), Received(user("x")), reply, Stopped(Stop("completed"), text)]
    return "\n".join([encode(Event("r", seq, 1.0, "a", body)) for seq, body in enumerate(bodies, 1)]) + "\n"


@pytest.mark.nightly
def test_a_run_is_made_into_a_test_that_passes_and_fails_with_the_agent(go, kyoto, served, tmp_path):
    page = go(f"#/runs/{kyoto}")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save as test").click()
    file = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(file)
    assert file.name.startswith("test_kyoto_for_four_")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file), "-c", "/dev/null"]
    done = warm.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(served))
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    file.write_text(file.read_text("utf-8").replace("agents', 'travel'", "agents', 'echo'"), encoding="utf-8")
    done = warm.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(served))
    assert "1 failed" in done.stdout, "an agent that decides otherwise is noticed"


def environment(served):
    import os

    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "KANAME_TEST_FOLDER": str(served.folder)}


@pytest.mark.nightly
def test_a_workflow_is_drawn_with_the_state_of_each_task_and_made_into_a_test(go, api, served, tmp_path):
    page = go("#/workflows")
    page.get_by_label("Parameters, as JSON").fill('{"sweet": "truffle"}')
    page.get_by_role("button", name="Start").click()
    graph = page.locator(".graph")
    expect(graph.locator(".edge[marker-end]")).to_have_count(3)
    for told in (
        "● tea · price · done",
        "● sweet · price · done",
        "● add · add · done",
        "– twice · add · not run · if add > 500",
    ):
        expect(graph.get_by_role("button", name=told)).to_be_visible()
    expect(page.get_by_role("region", name="Story")).to_contain_text("KeyError: 'truffle'")
    run = page.url.rpartition("/")[2]
    file = tmp_path / "test_flow.py"
    file.write_text(api.get(f"/api/runs/{run}/test").text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file), "-c", "/dev/null"]
    done = warm.run(command, capture_output=True, text=True, cwd=ROOT, env=environment(served))
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.nightly
def test_a_run_says_why_it_stopped_and_can_be_rated_and_deleted(go, api):
    run = api.post("/api/runs", json={"input": "count", "agent": "travel"}).json()["run_id"]
    page = go(f"#/runs/{run}")
    expect(page.locator("header .chip")).to_contain_text("step limit")
    expect(page.locator("aside dl").first).to_contain_text("8")
    page.get_by_role("button", name="bad").click()
    expect(page.locator("button.pressed")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    assert run not in [one["run_id"] for one in api.get("/api/runs").json()["runs"]]
