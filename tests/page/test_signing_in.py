"""Signing in to the page in a real browser: no script can read the sign-in, and the company's provider works."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")

from playwright.sync_api import expect

from kaname.serve.users import Users
from tests.serve.provider import SECRET
from tests.serve.serving import serving
from tests.serve.test_signin import started, with_oidc

pytestmark = pytest.mark.slow


def test_page_keeps_nothing_of_a_sign_in_that_a_script_could_read(tabs, tmp_path):
    users = Users(tmp_path / "users.json")
    token = users.add("rin", ["talk"])
    with serving(tmp_path, "--users", str(users.path), agents="tests/page/agents.py:agents") as served:
        tab = tabs(served=served)
        page = tab.page
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("signed in as rin")).to_be_visible()
        seen = page.evaluate("JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])")
        assert token not in seen
        (cookie,) = tab.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert cookie["value"] not in seen
        page.reload()
        expect(page.get_by_text("signed in as rin")).to_be_visible()
        with page.expect_response("**/api/signout"):
            page.get_by_role("button", name="sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        assert tab.context.cookies() == []
        tab.context.close()
        tab.wrong[:] = [line for line in tab.wrong if "401" not in line]


@pytest.mark.nightly
def test_page_signs_in_through_the_provider_of_the_company(tabs, tmp_path, monkeypatch):
    monkeypatch.setenv("DESK_SECRET", SECRET)
    with started("-m", "tests.serve.provider") as issuer:
        with_oidc(tmp_path, issuer, name="Example Corp")
        with started("-m", "kaname.cli.main", "serve", "--port", "0", cwd=tmp_path) as url:

            class Here:
                pass

            Here.url = url
            tab = tabs(served=Here)
            page = tab.page
            page.get_by_role("link", name="Sign in with Example Corp").click()
            expect(page.get_by_text("signed in as rin@example.com")).to_be_visible()
            page.get_by_role("button", name="sign out").click()
            expect(page.get_by_role("link", name="Sign in with Example Corp")).to_be_visible()
            tab.context.close()
            tab.wrong[:] = [line for line in tab.wrong if "401" not in line and not line.startswith(f"asked {issuer}")]
