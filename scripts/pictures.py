"""Pictures of every view of the page: light, dark, on a phone, in Japanese.

python scripts/pictures.py FOLDER        needs /usr/bin/chromium, fonts-noto-cjk and playwright (uv sync --group browser)
python scripts/pictures.py --readme      the four that the README shows, into docs/pictures
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from playwright.sync_api import sync_playwright  # noqa: E402
from tests.page.conftest import CHROMIUM  # noqa: E402
from tests.serve.serving import Served, client  # noqa: E402

README = {"run-light": "run", "inbox-dark": "inbox", "chat-light": "chat", "compare-ja": "compare"}
FORMS = {
    "light": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 800}, "device_scale_factor": 2},
    "ja": {"locale": "ja-JP"},
}


def fill(served: Served) -> dict[str, str]:
    """Runs of all kinds; the addresses of the views that show them."""
    with client(served) as api:

        def run(words: str, agent: str = "travel") -> dict:
            return api.post("/api/runs", json={"input": words, "agent": agent}).json()

        for words in ("weather in Nara", "weather in Atlantis", "count the cities", "What do you know of Kamakura?"):
            run(words)
        flow = run('{"sweet": "truffle"}', "shopping")["run_id"]
        for text in ("The user wants a window seat", "No smoking rooms"):
            api.post("/api/memory", json={"text": text, "kind": "preference"})
        done = run("Book the Kyoto trip for four")
        (question,) = done["questions"]
        api.post(f"/api/runs/{done['run_id']}/answers", json={"answers": {question["key"]: "yes"}, "mode": "wait"})
        facts = api.get(f"/api/runs/{done['run_id']}/facts").json()["facts"]
        found = next(fact for fact in facts if fact["type"] == "ToolFinished")
        fork = {"at": found["seq"] - 1, "results": {found["body"]["result"]["call_id"]: "no hotel is free"}, "mode": "wait"}
        other = api.post(f"/api/runs/{done['run_id']}/fork", json=fork).json()["run_id"]
        waiting = run("京都に4人で2泊、予算は10万円までで予約してください。")["run_id"]
        return {
            "runs": "#/runs",
            "run": f"#/runs/{waiting}",
            "travel": f"#/runs/{done['run_id']}?at=7",
            "facts": f"#/runs/{done['run_id']}?view=facts",
            "workflow": f"#/runs/{flow}",
            "chat": f"#/chat/{done['run_id']}",
            "inbox": "#/inbox",
            "compare": f"#/compare/{done['run_id']}/{other}",
            "workflows": "#/workflows",
            "memory": "#/memory",
            "figures": "#/figures",
            "empty": "#/runs?q=nothing-like-this",
        }


def main(target: Path, only: dict[str, str] | None) -> None:
    target.mkdir(parents=True, exist_ok=True)
    served = Served(Path(tempfile.mkdtemp()), agents="tests/page/agents.py:agents", KANAME_TEST_PACE="0.05")
    try:
        addresses = fill(served)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=next(path for path in CHROMIUM if Path(path).exists()), args=["--no-sandbox"]
            )
            for form, options in FORMS.items():
                page = browser.new_context(
                    **{"viewport": {"width": 1280, "height": 860}, "locale": "en-GB", **options}
                ).new_page()
                for view, address in addresses.items():
                    if only is not None and only.get(f"{view}-{form}") is None:
                        continue
                    page.goto(f"{served.url}/{address}")
                    page.wait_for_timeout(700)
                    page.screenshot(path=target / f"{view}-{form}.png")
                    print(target / f"{view}-{form}.png")
            browser.close()
    finally:
        served.end()


if __name__ == "__main__":
    if sys.argv[1:] == ["--readme"]:
        main(ROOT / "docs" / "pictures", README)
    else:
        main(Path(sys.argv[1] if sys.argv[1:] else "pictures"), None)
