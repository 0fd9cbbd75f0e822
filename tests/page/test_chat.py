"""Chat in a real browser: streaming, tools, approval, stop, edit and ask again, a server that is killed, two tabs."""

from __future__ import annotations

import pytest

from kaname.core.events import ModelReplied, Opened, Received, Stopped
from kaname.core.messages import Message, ModelReply, Text, user
from kaname.core.steps import CallModel, Stop
from tests.properties import nightly
from tests.serve.serving import Served

from .writing import write_runs

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


def ask(page, words, agent=""):
    if agent:
        page.get_by_label("agent").select_option(agent)
    page.get_by_label("Your message").fill(words)
    page.keyboard.press("Enter")


def test_a_chat_streams_tools_and_table_and_asks_before_it_books(go, api, served):
    page = go("#/chat")
    ask(page, "A trip to Kyoto, please", "travel")
    question = page.locator(".question")
    expect(question).to_contain_text("book_hotel")
    expect(question).to_contain_text("84000")
    page.get_by_text("search_hotels(").first.click()
    expect(page.get_by_text("6 hotels, ¥62,000–¥148,000")).to_be_visible()
    page.locator("details.thinking").first.click()
    expect(page.get_by_text("Four people, two nights")).to_be_visible()
    approve = page.get_by_role("button", name="Approve")
    colours = approve.evaluate("""button => [getComputedStyle(button).backgroundColor,
        getComputedStyle(document.querySelector(".ask .main")).backgroundColor]""")
    assert colours[0] != colours[1], "to approve is not the colour of danger"
    approve.click()
    expect(page.locator(".prose table")).to_contain_text("Ryokan Umi")
    expect(page.locator(".prose strong")).to_have_text("trains included")
    expect(page.locator(".prose pre code")).to_contain_text("total = 84_000")
    sides = (
        page.locator(".prose tr").last.locator("td").evaluate_all("cells => cells.map(one => getComputedStyle(one).textAlign)")
    )
    assert sides == ["start", "right", "start"], "as the line under the head says"
    assert page.locator(".prose a").get_attribute("rel") == "noopener noreferrer nofollow"
    assert (served.folder / "booked.txt").read_text("utf-8") == "Hotel Higashi 2 84000\n"


def test_a_reply_is_seen_while_it_is_written_and_can_be_stopped(go, api):
    page = go("#/chat")
    ask(page, "something long", "travel")
    going = page.locator(".going .prose")
    expect(going).to_contain_text("word word")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".chip", has_text="cancelled").first).to_be_visible()
    (run,) = [one for one in api.get("/api/runs").json()["runs"] if one["title"] == "something long"]
    assert run["status"] == "cancelled"


@pytest.mark.nightly
def test_what_is_said_while_the_agent_works_is_read_at_once_if_it_is_urgent(go, api):
    page = go("#/chat")
    ask(page, "something long and slow", "travel")
    expect(page.locator(".going .prose")).to_contain_text("word word")
    ask(page, "and a card")
    expect(page.locator(".unread")).to_contain_text("and a card")
    page.get_by_label("Your message").fill("the weather instead")
    page.get_by_role("button", name="Send now").click()
    expect(page.locator(".theirs").last).to_contain_text("It is sunny")
    expect(page.locator(".mine .text")).to_have_text(["something long and slow", "and a card", "the weather instead"])
    expect(page.locator(".unread")).to_have_count(0)
    (run,) = [one for one in api.get("/api/runs").json()["runs"] if one["title"] == "something long and slow"]
    assert run["status"] == "completed"


@pytest.mark.nightly
def test_the_list_of_things_to_do_is_shown_as_it_changes(go):
    page = go("#/chat")
    ask(page, "my errands", "travel")
    expect(page.get_by_role("list", name="To do")).to_have_text(["◐ buy tickets○ pack", "✓ buy tickets○ pack"])


@pytest.mark.nightly
def test_work_in_the_background_is_listed_and_leads_to_its_run(go):
    page = go("#/chat")
    ask(page, "How are people?", "survey")
    expect(page.locator(".theirs").last).to_contain_text("Nara is happy.")
    tasks = page.get_by_role("list", name="In the background")
    expect(tasks.last.locator("li").first).to_have_text('✓ survey: {"city":"Nara"}')
    expect(tasks.last.locator("li")).to_have_count(2)
    tasks.last.get_by_text("Nara").click()
    expect(page.get_by_text("everybody in Nara is happy").first).to_be_visible()


@pytest.mark.nightly
def test_an_edited_question_is_asked_in_a_fork_and_goes_on_from_there(go, api):
    page = go("#/chat")
    ask(page, "good morning", "echo")
    expect(page.locator(".theirs")).to_contain_text("echo: good morning")
    ask(page, "how are you")
    expect(page.locator(".theirs").last).to_contain_text("echo: how are you")
    page.get_by_role("button", name="Edit and resend").last.click()
    page.get_by_label("Your message").first.fill("how is the weather")
    page.get_by_role("button", name="Resend", exact=True).click()
    expect(page.locator(".theirs").last).to_contain_text("echo: how is the weather")
    expect(page.locator(".talk")).to_contain_text("echo: good morning")
    expect(page.locator(".talk")).not_to_contain_text("how are you")
    ask(page, "thank you")
    expect(page.locator(".theirs").last).to_contain_text("echo: thank you")
    expect(page.locator(".talk")).to_contain_text("how is the weather")
    kept = [run["title"] for run in api.get("/api/runs").json()["runs"]]
    assert "how are you" in kept, "the run that was edited stays as it was"


@pytest.mark.nightly
def test_a_server_killed_in_mid_stream_is_found_again_and_the_run_goes_on(tabs, tmp_path):
    served = Served(tmp_path, agents="tests/page/agents.py:agents", KANAME_TEST_PACE="0.004")
    tab = tabs(served=served)
    page = tab.page
    page.goto(f"{served.url}/#/chat")
    ask(page, "something long", "travel")
    expect(page.locator(".going .prose")).to_contain_text("word word")
    served.kill()
    expect(page.get_by_role("status").filter(has_text="cannot be reached")).to_be_visible()
    again = Served(tmp_path, agents="tests/page/agents.py:agents", port=served.port, KANAME_TEST_PACE="0")
    try:
        expect(page.locator(".chip", has_text="completed").first).to_be_visible()
        assert page.locator(".theirs .prose").last.inner_text().split() == ["word"] * 3000, "once, and whole"
    finally:
        tab.context.close()
        again.end()
    tab.wrong[:] = [line for line in tab.wrong if "ERR_CONNECTION" not in line and "ERR_INCOMPLETE" not in line]


@pytest.mark.nightly
def test_two_tabs_show_one_run_and_an_answer_in_one_is_seen_in_the_other(tab, api, served):
    run = api.post("/api/runs", json={"input": "Kyoto again", "agent": "travel"}).json()["run_id"]
    one, other = tab.open(f"#/runs/{run}"), tab.open(f"#/chat/{run}")
    expect(one.locator(".question")).to_be_visible()
    expect(other.locator(".question")).to_be_visible()
    one.get_by_role("button", name="Refuse").click()
    one.get_by_label("Reason").fill("too dear")
    one.get_by_role("button", name="Refuse").click()
    expect(other.locator(".theirs").last).to_contain_text("Ryokan Umi")
    expect(one.locator(".chip", has_text="completed").first).to_be_visible()
    expect(other.locator(".question.answered")).to_contain_text("too dear")


@pytest.mark.nightly
def test_a_key_meant_for_one_question_answers_no_other(go, api, served):
    run = api.post("/api/runs", json={"input": "book both in Kyoto", "agent": "travel"}).json()
    assert len(run["questions"]) == 2
    before = (served.folder / "booked.txt").read_text("utf-8") if (served.folder / "booked.txt").exists() else ""
    page = go(f"#/runs/{run['run_id']}")
    expect(page.locator(".question")).to_have_count(2)
    page.keyboard.press("y")
    page.wait_for_timeout(300)
    expect(page.locator(".question:not(.answered)")).to_have_count(2)
    page.locator(".question").first.locator("p").first.click()
    page.keyboard.press("y")
    expect(page.locator(".question:not(.answered)")).to_have_count(1)
    page.keyboard.press("y")
    page.wait_for_timeout(300)
    expect(page.locator(".question:not(.answered)")).to_have_count(1)
    assert before == ((served.folder / "booked.txt").read_text("utf-8") if (served.folder / "booked.txt").exists() else "")


@pytest.fixture(scope="module")
def conversations(served):
    """Many conversations: the last is longer than any window."""
    texts = [*[f"question {number}, which is longer than the list of conversations is wide" for number in range(14)], "hello"]
    told = {f"talk{number}": text for number, text in enumerate(texts)} | {"long": "\n\n".join(["a paragraph"] * 80)}

    def facts(text):
        reply = ModelReply(Message("assistant", (Text(text),)), "end_turn")
        return [Opened(), Received(user(text[:90])), ModelReplied(reply, CallModel()), Stopped(Stop("completed"), text)]

    write_runs(served.folder, {run: facts(text) for run, text in told.items()})


CUT = """all => all.filter(one => one.scrollHeight > one.clientHeight + 1 && getComputedStyle(one).overflowY !== "visible").length"""


@pytest.mark.nightly
@pytest.mark.parametrize("size", [(1280, 900), *nightly(((390, 800),))])
def test_the_input_stands_at_the_bottom_and_covers_nothing(tabs, conversations, size):
    page = tabs(viewport={"width": size[0], "height": size[1]}).page
    for address in ("#/chat", "#/chat/talk14", "#/chat/long"):
        page.goto(f"{page.url.split('#')[0]}{address}")
        expect(page.locator(".before li").first if address == "#/chat" else page.locator(".chat .chip")).to_be_attached()
        form = page.locator("form.ask")
        expect(form).to_be_in_viewport(ratio=1)
        box = form.bounding_box()
        assert abs(box["y"] + box["height"] - size[1]) < 2, address
        if address != "#/chat":
            expect(page.locator(".chat > section > .note")).to_be_in_viewport(ratio=1)
            last = page.locator(".chat > section > .note").bounding_box()
            assert last["y"] + last["height"] <= box["y"], "how it stands is not covered"
        elif size[0] < 500:
            assert page.locator(".before, .before ul, .before li").evaluate_all(CUT) == 0, "every conversation is shown whole"
