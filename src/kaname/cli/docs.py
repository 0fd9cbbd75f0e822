"""`kaname docs`: the documents that `search` looks through."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..core.language import say
from ..tools.search.pipeline import RAGPipeline
from .main import DONE, FAILED
from .screen import Screen, columns, cut, padded


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    pipeline = RAGPipeline(given.index, embeddings=given.embeddings)
    try:
        return {"add": _add, "list": _list, "search": _search, "remove": _remove}[given.action](given, pipeline, screen)
    finally:
        pipeline.close()


def _add(given: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    def show(done: int, total: int, name: str) -> None:
        bar = "█" * (done * 25 // max(1, total))
        screen.replace(cut(f"{bar:<25} {done}/{total}  {Path(name).name}", columns() - 1) if name else "")

    done = pipeline.add(*given.what, progress=show)
    for path, problem in done.problems.items():
        screen.note(f"✗ {path}: {problem}", "red")
    screen.note(
        say(
            f"{len(done.added)} read, {len(done.unchanged)} unchanged, {len(done.removed)} gone; "
            f"{len(pipeline)} passages in {pipeline.path}",
            f"追加 {len(done.added)}、変更なし {len(done.unchanged)}、削除 {len(done.removed)}。"
            f"{pipeline.path} に {len(pipeline)} 件",
        )
    )
    return FAILED if done.problems and not done.added and not done.unchanged else DONE


def _list(given: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    for row in pipeline.files():
        screen.say(f"{row.chunks:>6}  {row.path}" + (f"  ✗ {row.problem}" if row.problem else ""))
    if not pipeline.files():
        screen.note(say("no documents yet: kaname docs add FOLDER", "まだ文書がありません: kaname docs add フォルダー"))
    return DONE


def _search(given: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    hits = pipeline.search(" ".join(given.what), given.number)
    for number, hit in enumerate(hits, 1):
        place = ", ".join([part for part in (hit.heading, hit.place) if part])
        screen.raw(screen.coloured(f"[{number}] {screen.safe(hit.source)}", "cyan", screen.out) + "\n")
        screen.say(f"    {place}  ({hit.score:.2f})")
        for line in hit.text.splitlines():
            screen.say(f"    {padded(line, columns() - 6).rstrip() if screen.out.isatty() else line}")
    return DONE if hits else FAILED


def _remove(given: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    before = len(pipeline)
    pipeline.remove(*given.what)
    screen.note(say(f"{before - len(pipeline)} passages forgotten", f"{before - len(pipeline)} 件を削除しました"))
    return DONE if len(pipeline) < before else FAILED
