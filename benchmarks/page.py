"""The page in a real browser: first paint, 10,000 facts, 10,000 runs, 5,000 streamed deltas.

python benchmarks/page.py        needs /usr/bin/chromium and playwright (uv sync --group browser)
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from playwright.sync_api import Page, sync_playwright
from tests.page.writing import write_runs
from tests.serve.serving import Served

from kaname.core.events import ModelReplied, Opened, Received, Stopped, ToolFinished, ToolStarted
from kaname.core.messages import Message, ModelReply, Text, ToolCall, ToolResult, Usage, user
from kaname.core.steps import CallModel, Stop

FRAMES = """async (pixels) => {
  const times = [];
  let last = performance.now();
  const until = last + 3000;
  while (performance.now() < until) {
    scrollBy(0, pixels);
    if (innerHeight + scrollY >= document.documentElement.scrollHeight - 2) scrollTo(0, 0);
    await new Promise(requestAnimationFrame);
    times.push(performance.now() - last);
    last = performance.now();
  }
  times.sort((a, b) => a - b);
  return { frames: times.length / 3, slow: times[Math.floor(times.length * 0.95)], worst: times.at(-1) };
}"""


def long_run(facts: int) -> list:
    made = [Opened(recipe={"model": "some/model"}), Received(user("a long task"))]
    number = 0
    while len(made) < facts - 1:
        number += 1
        call = ToolCall(f"c{number}", ("search", "read", "write")[number % 3], {"query": f"thing {number}", "most": 5})
        said = Message("assistant", (Text(f"Step {number}: I look at **thing {number}** next."), call))
        made.append(ModelReplied(ModelReply(said, "tool_use", Usage(1200, 60, cost=0.001), model="some/model"), CallModel()))
        made += [
            ToolStarted(call, "pure"),
            ToolFinished(ToolResult(f"result {number}: " + "text " * 20, None, call.id, call.name)),
        ]
    return [*made[: facts - 1], Stopped(Stop("completed"), "done")]


def opened(page: Page, url: str, wanted: str) -> float:
    page.goto("about:blank")
    begun = time.perf_counter()
    page.goto(url)
    page.locator(wanted).first.wait_for()
    return (time.perf_counter() - begun) * 1000


def deltas(page: Page, url: str) -> None:
    page.goto(f"{url}/#/chat")
    page.get_by_label("agent").wait_for()
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def script() -> dict[str, float]:
        return {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}

    before = script()
    page.get_by_label("Your question").fill("5000 deltas")
    page.keyboard.press("Enter")
    page.locator(".chip", has_text="completed").wait_for(timeout=60_000)
    after = script()
    told = {
        name: round(after[name] - before[name], 2)
        for name in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration")
    }
    print(f"5,000 streamed deltas: {told} s")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    short = [Opened(recipe={}), Received(user("a question")), Stopped(Stop("completed"), "x")]
    runs = {f"run{number:05}": short for number in range(9_999)}
    write_runs(folder, {"long": long_run(10_000), **runs}, begun=time.time() - 20_000)
    served = Served(folder, agents="tests/page/agents.py:agents", KANAME_TEST_PACE="0.002")
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1360, "height": 900})
            opened(page, f"{served.url}/#/inbox", "h1")
            fetched = "performance.getEntriesByType('resource').filter(one => one.name.endsWith('.js')).map(one => one.encodedBodySize)"
            print(
                f"script of the inbox: {sum(page.evaluate(fetched)) / 1000:.1f} KB in {len(page.evaluate(fetched))} files, as transferred"
            )
            for name in ("first", "again"):
                page.goto("about:blank")
                page.goto(f"{served.url}/#/inbox")
                page.locator("h1").wait_for()
                paint = page.evaluate("performance.getEntriesByType('paint').map(one => Math.round(one.startTime))")
                shown = page.evaluate("performance.now()")
                print(f"first paint ({name}): {paint} ms; the view with its data by {shown:.0f} ms")
            print(f"10,000 runs: listed after {opened(page, f'{served.url}/#/runs', 'a.run'):.0f} ms")
            page.locator(".meta b", has_text="10,000").wait_for()
            print("  scrolling:", page.evaluate(FRAMES, 400))
            begun = time.perf_counter()
            print(f"10,000 facts: opened after {opened(page, f'{served.url}/#/runs/long', '.item'):.0f} ms", end="; ")
            page.locator(".tabs button", has_text="10,000").wait_for()
            print(f"all of them there after {(time.perf_counter() - begun) * 1000:.0f} ms")
            page.wait_for_timeout(500)
            print("  scrolling:", page.evaluate(FRAMES, 400))
            begun = time.perf_counter()
            page.keyboard.press("ArrowLeft")
            page.locator(".travel").wait_for()
            print(f"  one fact back: {(time.perf_counter() - begun) * 1000:.0f} ms")
            print(f"10,000 facts, as facts: {opened(page, f'{served.url}/#/runs/long?view=facts', '.fact'):.0f} ms")
            deltas(page, served.url)
            browser.close()
    finally:
        served.end()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
