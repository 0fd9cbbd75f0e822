"""Who a message is signed by: the page's own code, without a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import kaname.serve.page

FOLD = Path(kaname.serve.page.__file__).with_name("static") / "fold.js"


@pytest.mark.parametrize(
    ("run", "schedule"),
    [
        ("daily@desk@20261118T090000Z", "daily"),
        ("nightly report@desk@1a1eec3583aa2b6e99382cad4", "nightly report"),  # `kaname schedules run`
        ("1a1eec3583aa2b6e99382cad4", ""),
        ("order@ann@5", ""),
    ],
)
def test_message_of_a_scheduled_run_is_signed_by_its_schedule(tmp_path, run, schedule):
    if (node := shutil.which("node")) is None:
        pytest.skip("no node: the page's code was NOT tried")
    (tmp_path / "fold.mjs").write_text(FOLD.read_text())
    facts = [
        {"run": run, "seq": 1, "time": 1, "type": "Opened", "agent": "desk", "body": {"user": ""}},
        {"run": run, "seq": 2, "time": 1, "type": "Received", "body": {"message": {"role": "user", "parts": []}}},
    ]
    code = f'import {{ fold }} from "./fold.mjs"; console.log(fold({json.dumps(facts)}, {json.dumps(run)}).items[0].schedule)'
    (tmp_path / "main.mjs").write_text(code)
    done = subprocess.run([node, "main.mjs"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"{schedule}\n"
