"""Allow-list of the functions that only calculate, from `allowed.toml`. Others are refused: some read files or sleep."""

from __future__ import annotations

import tomllib
from pathlib import Path


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LISTED = {name: words(text) for name, text in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items()}
FUNCTIONS = {dialect: _LISTED["any_engine"] | _LISTED[dialect] for dialect in ("sqlite", "postgres", "duckdb")}
RESERVED, TYPES = _LISTED["reserved"], _LISTED["types"]
# DuckDB's that make rows; others read files, or tell of what is hidden
TABLE_FUNCTIONS = words("range generate_series unnest json_each json_tree")
