"""The page for everybody: with a token, in Japanese, on a phone, in the dark, by ear."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from kaname import SqliteJournal
from kaname.kernel.stores import QueuedRun, Wanted
from tests.serve.npm import packages
from tests.serve.serving import client, serving

__all__ = ["packages"]
sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect


@pytest.fixture(scope="module")
def filled(served):
    """One run of each kind."""
    with client(served) as api:
        asked = ("Kyoto for four", "weather in Nara", "weather in Atlantis", "count", "hello **there**")
        made = {words: api.post("/api/runs", json={"input": words, "agent": "travel"}).json()["run_id"] for words in asked}
        made["flow"] = api.post("/api/runs", json={"input": "{}", "agent": "shopping"}).json()["run_id"]
        api.post("/api/memory", json={"text": "The user wants a window seat", "kind": "preference"})
        return made


def addresses(filled):
    run, other = filled["Kyoto for four"], filled["weather in Nara"]
    named = [
        "#/runs",
        f"#/runs/{run}",
        f"#/runs/{run}?at=6",
        f"#/runs/{run}?view=facts",
        f"#/runs/{filled['flow']}",
        f"#/chat/{run}",
        "#/chat",
    ]
    return [
        *named,
        "#/inbox",
        f"#/compare/{run}/{other}",
        "#/workflows",
        "#/memory",
        "#/evals",
        "#/learn",
        "#/work",
        "#/figures",
        "#/nowhere",
    ]


@pytest.mark.nightly
@pytest.mark.network
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_serious(tabs, filled, packages, theme):
    axe = (packages / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
    page = tabs(color_scheme=theme, reduced_motion="reduce").page
    found = []
    page.evaluate(axe)
    for address in addresses(filled)[:: 1 if theme == "light" else 5]:
        page.goto(f"{page.url.split('#')[0]}{address}")
        page.wait_for_timeout(150)
        told = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        bad = [one for one in told["violations"] if one["impact"] in ("serious", "critical")]
        found += [(address, one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in bad]
    assert found == [], found


def test_the_page_speaks_japanese_and_stays_in_it(tabs, filled):
    tab = tabs(locale="ja-JP")
    page = tab.page
    expect(page.get_by_role("navigation")).to_contain_text("受信箱")
    page.goto(f"{tab.served.url}/#/inbox")
    expect(page.locator(".question").first).to_contain_text("を実行してよいですか")
    page.goto(f"{tab.served.url}/#/runs/{filled['count']}")
    expect(page.locator("header .chip")).to_contain_text("ステップ上限")
    expect(page.locator("html")).to_have_attribute("lang", "ja")
    page.goto(f"{tab.served.url}/#/runs/{filled['Kyoto for four']}")
    page.keyboard.press("t")
    page.get_by_role("button", name="English").click()
    expect(page.get_by_role("navigation")).to_contain_text("Inbox")


@pytest.mark.nightly
def test_a_problem_of_the_server_is_told_in_japanese(tabs, filled):
    tab = tabs(locale="ja-JP")
    page = tab.page
    page.goto(f"{tab.served.url}/#/runs/{filled['weather in Nara']}")
    page.get_by_role("button", name="分岐").click()
    page.get_by_label("別のモデル").fill("nosuch/model")
    page.get_by_role("dialog").get_by_role("button", name="分岐", exact=True).click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("対応していません")
    tab.wrong[:] = [line for line in tab.wrong if "400" not in line]


@pytest.mark.nightly
def test_a_phone_shows_every_view_without_scrolling_sideways(tabs, filled):
    page = tabs(viewport={"width": 390, "height": 800}).page
    for address in addresses(filled):
        page.goto(f"{page.url.split('#')[0]}{address}")
        expect(page.get_by_role("heading", level=1).or_(page.locator(".quiet-title")).first).to_be_attached()
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, address


@pytest.fixture(scope="module")
def manned(tmp_path_factory):
    """A server with users, and their tokens: rin may talk, boss may everything."""
    from kaname.serve.users import Users

    folder = tmp_path_factory.mktemp("manned")
    users = Users(folder / "users.json")
    tokens = {name: users.add(name, [role]) for name, role in (("rin", "talk"), ("boss", "admin"))}
    with serving(folder, "--users", str(users.path), agents="tests/page/agents.py:agents") as served:
        with client(served, tokens["rin"]) as api:
            runs = {
                words: api.post("/api/runs", json={"input": words, "agent": "travel"}).json()["run_id"]
                for words in ("Kyoto", "hi")
            }
        with client(served, tokens["boss"]) as api:
            runs["other"] = api.post("/api/runs", json={"input": "hello", "agent": "echo"}).json()["run_id"]
        yield served, tokens, runs


def signed_in(tabs, manned, name):
    served, tokens, _ = manned
    page = tabs(served=served, token=tokens[name]).page
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    return page


def test_a_server_with_users_asks_for_a_token_and_shows_what_it_allows(tabs, manned):
    served, tokens, runs = manned
    tab = tabs(served=served)
    page = tab.page
    for token in ("kn_wrong", tokens["rin"]):
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        if token == "kn_wrong":
            expect(page.get_by_role("alert")).to_contain_text("not valid")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    with client(served, tokens["rin"]) as api:
        facts = json.dumps(api.get(f"/api/runs/{runs['Kyoto']}/facts").json())
        assert "You plan trips" not in facts, "instructions are the administrator's"
        assert api.get(f"/api/runs/{runs['Kyoto']}/test").status_code == 403
        assert api.get(f"/api/compare?one={runs['Kyoto']}&other={runs['hi']}").status_code == 200
        assert api.get(f"/api/compare?one={runs['Kyoto']}&other={runs['other']}").status_code == 404
    page.goto(f"{served.url}/#/runs/{runs['Kyoto']}")
    expect(page.get_by_text("You can see this question, but you are not allowed to answer it.")).to_be_visible()
    expect(page.get_by_role("button", name="Save as test")).to_have_count(0)
    page.get_by_role("button", name="sign out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    tab.context.close()
    tab.wrong[:] = [line for line in tab.wrong if "401" not in line]


def test_a_run_waits_for_you_only_if_you_are_allowed_to_answer(tabs, manned):
    served, _, runs = manned
    for name, word, badge in (("rin", "waiting for an answer", 0), ("boss", "waiting for you", 1)):
        page = signed_in(tabs, manned, name)
        expect(page.locator(".run .chip", has_text="waiting")).to_contain_text(word)
        page.goto(f"{served.url}/#/chat/{runs['Kyoto']}")
        expect(page.locator(".chip", has_text="waiting")).to_contain_text(word)
        expect(page.locator(".question").get_by_role("button")).to_have_count(4 * badge)
        expect(page.locator("nav .count")).to_have_count(badge)
        expect(page.get_by_role("navigation")).to_contain_text(f"signed in as {name}")


@pytest.mark.nightly
def test_a_message_is_signed_by_its_author_and_runs_name_their_users_to_administrators(tabs, manned):
    served, _, runs = manned
    page = signed_in(tabs, manned, "boss")
    expect(page.locator("a.run .user")).to_have_text(["boss", "rin", "rin"])
    for run, author in ((runs["hi"], "rin"), (runs["other"], "you")):
        page.goto(f"{served.url}/#/runs/{run}")
        expect(page.locator(".is-asked_for .note")).to_contain_text(f"{author}, ")
    page.goto(f"{served.url}/#/chat/{runs['hi']}")
    expect(page.locator(".mine .note")).to_have_text("rin")
    expect(page.locator(".before li").last).to_contain_text("rin · travel")
    page = signed_in(tabs, manned, "rin")
    expect(page.locator("a.run")).to_have_count(2)
    expect(page.locator("a.run .user")).to_have_count(0)
    page.goto(f"{served.url}/#/chat/{runs['hi']}")
    expect(page.locator(".mine")).to_be_visible()
    expect(page.locator(".mine .note")).to_have_count(0)


@pytest.mark.nightly
def test_a_memory_is_corrected_and_forgotten(go, filled, api):
    page = go("#/memory")
    one = page.locator(".memory", has_text="window seat")
    one.get_by_role("button", name="correct").click()
    page.get_by_label("Corrected text").fill("The user wants an aisle seat")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".memories")).to_contain_text("aisle seat")
    page.locator(".memory", has_text="aisle seat").get_by_role("button", name="delete").click()
    expect(page.locator(".memories")).not_to_contain_text("aisle seat")
    assert "aisle" not in api.get("/api/memory?past=1").text


@pytest.mark.nightly
def test_the_figures_count_what_was_done(go, filled):
    page = go("#/figures")
    expect(page.get_by_role("region", name="Tools")).to_contain_text("weather")
    expect(page.locator("figure").first).to_contain_text("Runs")
    page.get_by_role("link", name="step limit").click()
    expect(page.locator("a.run")).to_have_count(1)


@pytest.mark.nightly
def test_braces_that_are_meant_are_told_once(go, filled):
    told = go("#/runs").evaluate(
        """async () => (await import("/page/words.js")).t('{{"result": …}} of {name}', { name: "pay" })"""
    )
    assert told == '{"result": …} of pay'


@pytest.mark.nightly
def test_queue_shows_schedules_and_what_was_set_aside_and_steers_them(tab, go, filled):
    """A run of an agent that this server does not have: it stays where a worker has set it aside."""

    async def set_aside():
        journal = SqliteJournal(next(tab.served.folder.rglob("*.db")))
        await journal.stores.queue.put([QueuedRun("stuck", "nobody")])
        await journal.stores.queue.take(Wanted(("nobody",)), 1)
        await journal.stores.queue.set_aside("stuck", "its process died 10 times")
        await journal.close()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, set_aside()).result()
    page, soon = go("#/work"), {"timeout": 60_000}
    aside = page.get_by_role("row", name="stuck")
    expect(aside).to_contain_text("its process died 10 times", **soon)
    aside.get_by_role("button", name="Retry").click()
    expect(aside).to_contain_text("queued", **soon)
    daily = page.get_by_role("region", name="Schedules").get_by_role("row", name="daily")
    expect(daily).to_contain_text("0 9 * * 1-5 Asia/Tokyo", **soon)
    daily.get_by_role("button", name="Run now").click()
    expect(daily).to_contain_text("daily@echo@", **soon)
    daily.get_by_role("button", name="Pause").click()
    expect(daily).to_contain_text("paused", **soon)
    daily.get_by_role("button", name="Resume schedule").click()
    expect(daily).not_to_contain_text("paused", **soon)
    expect(page.get_by_role("region", name="Workers").get_by_role("row")).not_to_have_count(1, **soon)
