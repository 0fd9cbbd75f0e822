"""Learning on the page: failures by cause, what went well, and a lesson that is approved and rolled back."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from kaname import Agent, Lessons, ScriptedModel, SqliteJournal, call, max_steps, tool
from kaname.evals import LessonBook

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


@tool(effect="pure")
def price(item: str) -> int:
    """The price of an item."""
    return 300


async def fail(path):
    journal = SqliteJournal(path)
    agent = Agent(
        ScriptedModel(lambda request: call("price", thing=str(len(request.messages)))),
        [price],
        name="stall",
        journal=journal,
        stops=[max_steps(2)],
        context=Lessons(),
    )
    for item in ("tea", "cake"):
        await agent.run(f"How much is {item}?", user_id="ken")
    await agent.close()
    (lesson,) = await LessonBook(journal).all("stall")
    await journal.close()
    return lesson


@pytest.fixture(scope="module")
def lesson(served):
    with ThreadPoolExecutor(1) as thread:  # the browser's driver has the event loop of this one
        return thread.submit(lambda: asyncio.run(fail(served.folder / "journal.db"))).result()


def test_a_lesson_is_shown_with_its_evidence_approved_for_all_and_rolled_back(go, api, lesson):
    page = go("#/learn")
    expect(page.locator("main")).to_contain_text("2 wrong arguments price")
    one = page.locator("li").filter(has_text=lesson.advice)
    expect(one).to_contain_text("not tried")
    one.get_by_role("button", name="Approve for all users").click()
    expect(page.locator(".said")).to_have_text("Approved")
    shared = page.locator("li").filter(has_text="for all users")
    expect(shared).to_contain_text("approved by a person")
    shared.get_by_role("button", name="Roll back").click()
    expect(page.locator(".said")).to_have_text("Rolled back")
    expect(page.get_by_role("button", name="Roll back")).to_have_count(0)
    statuses = [each["status"] for each in api.get("/api/learning?agent=stall").json()["lessons"]]
    assert statuses == ["dropped", "dropped"]
    unknown = api.post("/api/learning/lessons/nothing", json={"action": "approve"})
    assert (unknown.status_code, "there is no lesson" in unknown.json()["detail"]) == (400, True)


@pytest.mark.nightly
def test_lessons_are_shown_in_japanese(tabs, lesson):
    tab = tabs(locale="ja-JP")
    tab.page.goto(f"{tab.served.url}/#/learn")
    expect(tab.page.locator("main")).to_contain_text("引数の誤り")
    expect(tab.page.locator("main")).to_contain_text("price を呼び出す前に")
