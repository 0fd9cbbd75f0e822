"""People who answer for other users, in a real browser: they see the call and its picture, and answer equal questions at once."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")

from playwright.sync_api import expect

from kaname.serve.users import Users
from tests.properties import nightly
from tests.serve.serving import client, serving

CHART = "Draw a chart of the cups and mail it."


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    folder = tmp_path_factory.mktemp("desk")
    users = Users(folder / "users.json")
    tokens = {"ann": users.add("ann", ["talk", "approve"]), "boss": users.add("boss", ["approve:clerk"])}
    options = ("--users", str(users.path), "--approvers-see", "turn")
    with serving(folder, *options, agents="tests/page/agents.py:agents") as served:
        yield served, tokens


@pytest.fixture
def ann(desk):
    served, tokens = desk
    with client(served, tokens["ann"]) as http:
        yield lambda words: http.post("/api/runs", json={"input": words, "agent": "clerk"}).json()["run_id"]


def width(picture):
    return picture.evaluate("one => one.decode().then(() => one.naturalWidth)")


@pytest.mark.nightly
@pytest.mark.parametrize("size", [*nightly(((1280, 900),)), (390, 844)])
def test_question_about_a_mail_shows_the_chart_and_its_buttons_are_not_covered(tabs, desk, ann, size):
    served, tokens = desk
    run = ann(CHART)
    tab = tabs(served=served, token=tokens["ann"], viewport={"width": size[0], "height": size[1]})
    tab.page.goto(f"{served.url}/#/chat/{run}")
    assert width(tab.page.locator(".question .medium img")) > 100
    assert width(tab.page.locator(".theirs > .medium img")) > 100, "a chart that was asked for is seen without a click"
    approve = tab.page.get_by_role("button", name="Approve")
    seen = (
        "one => { const at = one.getBoundingClientRect(); return one.contains(document.elementFromPoint(at.x + 5, at.y + 5)) }"
    )
    tab.page.wait_for_function(seen, arg=approve.element_handle())
    (served.folder / "mailed.txt").unlink(missing_ok=True)
    approve.click()
    expect(tab.page.get_by_text("Sent.")).to_be_visible()
    assert (served.folder / "mailed.txt").read_text("utf-8") == "ann@example.com image/png"


@pytest.mark.parametrize("view", ["runs", *nightly("chat")])
def test_approver_who_opens_a_run_of_another_user_sees_the_question_and_answers_it(tabs, desk, ann, view):
    served, tokens = desk
    run = ann(CHART)
    tab = tabs(served=served, token=tokens["boss"])
    page = tab.page
    page.goto(f"{served.url}/#/{view}/{run}")
    expect(page.locator(".question")).to_have_count(1)
    expect(page.locator(".question")).to_contain_text("Allow send_mail?")
    assert width(page.locator(".question .medium img")) > 100
    page.get_by_text("What was said and done").click()
    expect(page.locator(".question details pre")).to_contain_text(CHART)
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("No open questions")).to_be_visible()
    tab.wrong[:] = [line for line in tab.wrong if "404" not in line]  # the rest of the run is not shown


def test_equal_questions_are_answered_at_once_and_no_other(tabs, desk, ann):
    served, tokens = desk
    for yen in (500, 700, 500, 500):
        ann(f"Pay {yen}")
    tab = tabs(served=served, token=tokens["boss"])
    page = tab.page
    page.goto(f"{served.url}/#/inbox")
    expect(page.locator(".inbox > li")).to_have_count(4)
    page.get_by_role("button", name="Select 3 equal questions").first.click()
    expect(page.locator(".inbox input:checked")).to_have_count(3)
    ann("Pay 500")  # it came after the selection
    expect(page.locator(".inbox > li")).to_have_count(5)
    page.get_by_role("button", name="Approve all").click()
    expect(page.locator(".inbox > li")).to_have_count(2)
    page.get_by_role("button", name="Select 2 questions about pay").first.click()
    page.get_by_label("Reason").fill("too much")
    page.get_by_role("button", name="Refuse all").click()
    expect(page.get_by_text("No open questions")).to_be_visible()
    with client(served, tokens["ann"]) as http:
        runs = [one for one in http.get("/api/runs").json()["runs"] if one["title"].startswith("Pay")]
        for run in runs:
            http.get(f"/api/runs/{run['run_id']}/events")  # ends with the run
        facts = [http.get(f"/api/runs/{run['run_id']}/facts").json()["facts"] for run in runs]
    answers = [fact["body"] for each in facts for fact in each if fact["type"] == "Answered"]
    assert len(answers) == 5
    assert {one["by"] for one in answers} == {"boss"}
    assert sum(one["answer"] == {"approved": False, "reason": "too much"} for one in answers) == 2
    assert (served.folder / "paid.txt").read_text("utf-8").split() == ["500"] * 3
