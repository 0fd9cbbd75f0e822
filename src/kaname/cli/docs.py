"""`kaname docs`: the documents that `search` looks through."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..core.install import this_command
from ..core.people.columns import wrapped
from ..tools.search.cite import Hit, cited, whole_document
from ..tools.search.index import Index
from ..tools.search.pipeline import Added, RAGPipeline, default_index
from .main import DONE, FAILED
from .messages import japanese, many, say, translated
from .terminal.screen import Screen, columns, cut, width

_BAR = 25
_FAR = re.compile(r" \(\d+ of \d+\)$")  # how far a large file is
_ENDINGS = 5  # that are named of those that are not read


def main(given: argparse.Namespace) -> int:
    screen = Screen()
    if given.action == "add":
        with closing(RAGPipeline(given.index, embeddings=given.embeddings)) as pipeline:
            return _add(given, pipeline, screen)
    if given.index is None and not default_index().exists():
        screen.note(
            say(
                f"no documents yet: {this_command()} docs add FOLDER",
                f"まだ文書がありません: {this_command()} docs add フォルダー",
            )
        )
        return DONE if given.action == "list" else FAILED
    if given.action == "search":
        with closing(RAGPipeline(given.index, embeddings=given.embeddings, new=False)) as pipeline:
            return _search(given, pipeline, screen)
    act: Callable[[argparse.Namespace, Index, Screen], int]
    act = {"list": _list, "show": _show, "remove": _remove}[given.action]
    with closing(Index(given.index or default_index(), new=False)) as index:
        return act(given, index, screen)


def _add(given: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    def show(done: int, total: int, name: str) -> None:
        size = min(_BAR, columns() // 3)
        bar = "█" * (done * size // max(1, total))
        count = f"{done:>{len(str(total))}}/{total}"
        rest = columns() - size - len(count) - 4
        whole, far = _FAR.sub("", name), _FAR.search(name)
        within = far[0] if far else ""
        screen.replace(f"{bar:░<{size}} {count}  {cut(Path(whole).name, rest - width(within))}{within}" if name else "")

    done = pipeline.add(*given.what, progress=show, forget=given.forget)
    for path, problem in done.problems.items():
        screen.note(f"✗ {path}: {translated(problem)}", "red")
    if done.again:
        count = len(done.again)
        screen.note(say(f"{count} read again with a newer reader", f"新しい読み取り方式で {count} 件を読み直しました"))
    if done.passed:
        screen.note(_passed(done))
    screen.note(
        say(
            f"{len(done.added)} read, {len(done.unchanged)} unchanged, {len(done.removed)} gone; "
            f"{many(len(pipeline), 'passage')} in {pipeline.path}",
            f"追加 {len(done.added)}、変更なし {len(done.unchanged)}、削除 {len(done.removed)}。"
            f"{pipeline.path} に {len(pipeline)} 件",
        )
    )
    if not (done.added or done.unchanged or done.removed or done.problems):
        screen.note(say("there is nothing in it that can be read", "読めるファイルがありません"), "red")
        return FAILED
    return FAILED if done.problems and not done.added and not done.unchanged else DONE


def _passed(done: Added) -> str:
    """`12 .py, 3 .doc are not read`."""
    most = [f"{count} {ending}" for ending, count in done.passed.most_common(_ENDINGS)]
    listed = ", ".join([*most, *(["…"] if len(done.passed) > _ENDINGS else [])])
    return say(f"{listed} {'is' if done.passed.total() == 1 else 'are'} not read", f"読まなかったもの: {listed}")


def _list(given: argparse.Namespace, index: Index, screen: Screen) -> int:
    files = index.files()
    for row in files:
        screen.say(f"{row.chunks:>6}  {row.path}" + (f"  ✗ {row.problem}" if row.problem else ""))
    if not files:
        screen.note(
            say(
                f"no documents yet: {this_command()} docs add FOLDER",
                f"まだ文書がありません: {this_command()} docs add フォルダー",
            )
        )
    return DONE


def _search(given: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    hits = pipeline.search(" ".join(given.what), given.number)
    for hit in hits:
        _passage(hit, screen, f"  ({hit.score:.2f})")
    if not hits:
        screen.note(say("nothing was found", "見つかりませんでした"))
    return DONE if hits else FAILED


def _show(given: argparse.Namespace, index: Index, screen: Screen) -> int:
    _passage(cited(" ".join(given.what), index), screen)
    return DONE


def _passage(hit: Hit, screen: Screen, more: str = "") -> None:
    place = ", ".join([part for part in (hit.heading, told_place(hit.place)) if part])
    screen.raw(screen.coloured(screen.safe(hit.cite), "cyan", screen.out) + "\n")
    screen.say(f"    {hit.source}{f': {place}' if place else ''}{more}")
    for line in hit.text.splitlines():
        for row in wrapped(line, columns() - 6) if screen.out.isatty() else [line]:
            screen.say(f"    {row}")


_UNITS = (
    (re.compile(r"^line (\d+)"), r"\1 行目"),
    (re.compile(r"^page (\d+)"), r"\1 ページ"),
    (re.compile(r"^paragraph (\d+)"), r"\1 段落目"),
    (re.compile(r"^slide (\d+)"), r"スライド \1"),
    (re.compile(r", notes$"), "、ノート"),
    (re.compile(r"^sheet (.*), row (\d+)$"), r"シート \1、\2 行目"),
)


def told_place(place: str) -> str:
    """Return where in its file a passage stands, as the readers write it, in the user's language."""
    for english, nihongo in _UNITS if japanese() else ():
        place = english.sub(nihongo, place)
    return place


def _remove(given: argparse.Namespace, index: Index, screen: Screen) -> int:
    gone = {path for name in given.what for path in index.below(name) or [whole_document(name, index)]}
    index.remove(gone)
    screen.note(say(f"{many(len(gone), 'file')} forgotten", f"{len(gone)} 件のファイルを削除しました"))
    return DONE
