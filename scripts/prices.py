"""Make `src/kaname/models/prices.json` from the table that an installed litellm carries (its figures, our selection and form).

python scripts/prices.py PATH/litellm/model_prices_and_context_window_backup.json "litellm 1.106.2" 2026-11-15
"""

import json
import re
import sys
from pathlib import Path

KINDS = {
    "input": "input_cost_per_token",
    "output": "output_cost_per_token",
    "cached": "cache_read_input_token_cost",
    "written": "cache_creation_input_token_cost",
    "hour": "cache_creation_input_token_cost_above_1hr",
}
DATED = re.compile(r"-(\d{4}-\d\d-\d\d|\d{8})$")


def price(entry: dict, ending: str = "") -> dict:
    found = {kind: entry.get(field + ending) for kind, field in KINDS.items()}
    return {kind: round(value * 1e6, 6) for kind, value in found.items() if value is not None}


def priced(entry: dict) -> dict:
    made = price(entry)
    over = {field for field in entry if re.fullmatch(r"input_cost_per_token_above_\d+k_tokens", field)}
    for field in over:
        size = re.findall(r"\d+k", field)[0]
        made["over"] = int(size[:-1]) * 1000
        made["long"] = price(entry, f"_above_{size}_tokens")
    return made


def main(path: str, source: str, date: str) -> None:
    table = json.loads(Path(path).read_text())
    rows = {}
    for name, entry in table.items():
        provider = entry.get("litellm_provider")
        if provider not in ("openai", "anthropic") or entry.get("mode") not in ("chat", "responses"):
            continue
        if "/" in name or any("audio" in field for field in entry if "cost" in field) or "input_cost_per_token" not in entry:
            continue
        rows[f"{provider}/{name}"] = priced(entry)
    rows = {n: row for n, row in rows.items() if not (DATED.search(n) and rows.get(DATED.sub("", n)) == row)}
    head = {"source": source, "date": date, "unit": "US dollars for a million tokens"}
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    text = json.dumps(head, indent=1)[:-2] + ',\n "prices": {\n  ' + lines + "\n }\n}\n"
    json.loads(text)
    (Path(__file__).parents[1] / "src/kaname/models/prices.json").write_text(text)
    print(len(rows), "prices")


if __name__ == "__main__":
    main(*sys.argv[1:])
