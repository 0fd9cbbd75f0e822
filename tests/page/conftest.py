"""A real browser (the system's Chromium) on a real server. Without one, the page's tests are skipped, and say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serve.serving import client, serving

# One engine; without a window it takes two thirds of the time.
CHROMIUM = ("/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chromium")


@pytest.fixture(scope="package")  # its driver keeps an event loop going: no longer than needed
def chromium():
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
    found = next((path for path in CHROMIUM if Path(path).exists()), None)
    if found is None:
        pytest.skip("no Chromium (apt-get install chromium-headless-shell fonts-noto-cjk): the page was NOT tried in a browser")
    playwright.expect.set_options(timeout=60_000)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served"), agents="tests/page/agents.py:agents") as one:
        yield one


@pytest.fixture
def api(served):
    with client(served) as one:
        yield one


class Tab:
    """A tab of its own, which keeps what went wrong in it: errors, and requests to anywhere else."""

    def __init__(self, browser, served, token="", **options):
        options = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", "accept_downloads": True, **options}
        self.context = browser.new_context(**options)
        if token:  # as if somebody had signed in
            self.context.request.post(f"{served.url}/api/signin", data={"token": token}, headers={"origin": served.url})
        self.served, self.wrong = served, []
        self.page = self.open()

    def open(self, address=""):
        page = self.context.new_page()
        page.set_default_timeout(60_000)
        page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda problem: self.wrong.append(str(problem)))
        page.on("dialog", lambda dialog: dialog.accept())
        page.on("request", lambda request: None if self.is_ours(request.url) else self.wrong.append(f"asked {request.url}"))
        page.goto(f"{self.served.url}/{address}")
        return page

    def is_ours(self, url):
        return url.startswith((self.served.url, "blob:", "data:"))


@pytest.fixture
def tabs(chromium, request):
    """Makes tabs; at the end, nothing may have gone wrong in any of them."""
    made = []

    def make(served=None, **options):
        made.append(Tab(chromium, served or request.getfixturevalue("served"), **options))
        return made[-1]

    yield make
    for tab in made:
        tab.context.close()
    assert [line for tab in made for line in tab.wrong] == []


@pytest.fixture
def tab(tabs):
    return tabs()


@pytest.fixture
def go(tab):
    """Opens an address of the page."""

    def opened(address):
        tab.page.goto(f"{tab.served.url}/{address}")
        return tab.page

    return opened
