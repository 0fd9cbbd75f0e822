"""The page with a real model: it answers on this machine, and its words are seen as they come."""

from __future__ import annotations

import pytest

from tests.serve.serving import serving

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect

AGENTS = """
from kaname import Agent

agents = [Agent("local", name="small", instructions="Answer with one word.", journal="journal.db")]
"""


@pytest.mark.nightly
def test_a_real_model_answers_in_the_chat(local_model, tabs, tmp_path):
    (tmp_path / "small.py").write_text(AGENTS)
    with serving(tmp_path, agents=f"{tmp_path}/small.py:agents") as served:
        page = tabs(served=served).page
        page.goto(f"{served.url}/#/chat")
        page.get_by_label("Your message").fill("What is the capital of Japan?")
        page.keyboard.press("Enter")
        expect(page.locator(".chip", has_text="completed").first).to_be_visible(timeout=180_000)
        expect(page.locator(".theirs .prose").last).to_contain_text("Tokyo")
        page.get_by_role("link", name="Show the run").click()
        expect(page.locator("aside")).to_contain_text("local/")
        page.context.close()
