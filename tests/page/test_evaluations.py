"""Evaluations on the page: the list, the cases, the failing run, the comparison, and a recorded run as a case."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from kaname import Agent, ScriptedModel, SqliteJournal
from kaname.evals import Case, Evaluation, load_evaluation
from kaname.serve.users import Users
from tests.serve.serving import client, serving

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


async def evaluate(path):
    """Two versions of an agent: one is right half the time, the other always."""
    journal = SqliteJournal(path)
    cases = [Case(f"question {n}", f"case {n}", contains="right") for n in range(20)]

    def half(request):
        return "right" if int(request.messages[-1].text.split()[-1]) % 2 else "wrong <b>"

    made = [
        await Evaluation("desk", cases).run(
            Agent(ScriptedModel(script), name="desk", journal=journal, instructions=label), label=label
        )
        for label, script in (("before", half), ("after", ["right"]))
    ]
    await journal.close()
    return [one.job for one in made]


@pytest.fixture(scope="module")
def jobs(served):
    with ThreadPoolExecutor(1) as thread:  # the browser's driver has the event loop of this one
        return thread.submit(lambda: asyncio.run(evaluate(served.folder / "journal.db"))).result()


def test_a_failing_case_leads_to_its_run_and_two_evaluations_are_compared(go, jobs):
    page = go("#/evals")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.nth(0)).to_contain_text("desk [after]")
    expect(rows.nth(1)).to_contain_text("50 %")
    page.get_by_role("link", name="desk [before]").click()
    expect(page.get_by_role("heading", name="desk [before]")).to_be_visible()
    expect(page.locator("tbody tr")).to_have_count(20)
    page.get_by_role("button", name="only failed cases").click()
    expect(page.locator("tbody tr")).to_have_count(10)
    expect(page.locator("tbody tr").first).to_contain_text("'right' is not in the answer 'wrong <b>'")
    page.locator("tbody tr").first.get_by_role("link", name="open run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("question 0")
    page.go_back()
    page = go(f"#/evals/{jobs[1]}")
    page.get_by_label("Compare with").select_option(jobs[0])
    expect(page.locator(".verdict")).to_contain_text("real: 50.0 points better (p = 0.00293, 20 cases)")
    expect(page.locator("main")).to_contain_text("better: case 0, case 2")


@pytest.mark.nightly
def test_the_comparison_is_told_in_japanese(tabs, jobs):
    tab = tabs(locale="ja-JP")
    tab.page.goto(f"{tab.served.url}/#/evals/{jobs[0]}/{jobs[1]}")
    expect(tab.page.locator(".verdict")).to_contain_text("有意差あり: 50.0 ポイント改善")


@pytest.mark.nightly
def test_a_recorded_run_is_added_to_the_cases_with_a_button(go, api, served):
    run = api.post("/api/runs", json={"input": "weather in Nara", "agent": "travel"}).json()["run_id"]
    page = go(f"#/runs/{run}")
    page.get_by_role("button", name="Add to evaluation").click()
    expect(page.locator(".said")).to_have_text("Added to evals.jsonl")
    (case,) = load_evaluation(served.folder / "evals.jsonl").cases
    assert (case.input, [name for name, _ in case.expect["calls_in_order"]]) == ("weather in Nara", ["weather"])
    again = api.post("/api/evaluations/cases", json={"run_id": run})
    assert (again.status_code, "already" in again.json()["detail"]) == (400, True)
    assert len((served.folder / "evals.jsonl").read_text().splitlines()) == 1


@pytest.mark.nightly
def test_evaluations_are_for_administrators(tmp_path):
    users = Users(tmp_path / "users.json")
    tokens = {name: users.add(name, [role]) for name, role in (("boss", "admin"), ("ann", "talk"))}
    with serving(tmp_path, "--users", str(tmp_path / "users.json")) as guarded:
        for path in ("evaluations", "evaluations/eval-x", "evaluations/compare?one=a&other=b"):
            with client(guarded, tokens["ann"]) as http:
                assert http.get(f"/api/{path}").status_code == 403
        with client(guarded, tokens["ann"]) as http:
            assert http.post("/api/evaluations/cases", json={"run_id": "x"}).status_code == 403
        with client(guarded, tokens["boss"]) as http:
            assert http.get("/api/evaluations").json() == {"evaluations": []}
            assert http.get("/api/evaluations/eval-x").status_code == 404
            assert http.get("/api/evaluations/compare?one=a").status_code == 400
            assert http.post("/api/evaluations/cases", json={"run_id": "x"}).status_code == 404
