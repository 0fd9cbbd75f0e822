"""`kaname docs`: the documents that the tool `search` reads."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from ..config.encryption import apply_encryption_of
from ..core.install import this_command
from ..core.people.columns import wrap_line
from ..tools.search.cite import Hit, find_cited, whole_document
from ..tools.search.index import Index
from ..tools.search.pipeline import Added, RAGPipeline, default_index
from .main import DONE, FAILED
from .messages import japanese, many, say, translate
from .terminal.screen import Screen, columns, truncate, width

_BAR = 25
_FAR = re.compile(r" \(\d+ of \d+\)$")  # how far a large file is
_ENDINGS = 5  # that are named of those that are not read


def main(args: argparse.Namespace) -> int:
    screen = Screen()
    apply_encryption_of()
    if args.action == "add":
        with closing(RAGPipeline(args.index, embeddings=args.embeddings)) as pipeline:
            return _add(args, pipeline, screen)
    if args.index is None and not default_index().exists():
        screen.tell(
            f"no documents yet. Add some with: {this_command()} docs add FOLDER",
            f"まだ文書がありません。次のコマンドで追加できます: {this_command()} docs add フォルダー",
        )
        return DONE if args.action == "list" else FAILED
    if args.action == "search":
        with closing(RAGPipeline(args.index, embeddings=args.embeddings, new=False)) as pipeline:
            return _search(args, pipeline, screen)
    act: Callable[[argparse.Namespace, Index, Screen], int]
    act = {"list": _list, "show": _show, "remove": _remove}[args.action]
    with closing(Index(args.index or default_index(), new=False)) as index:
        return act(args, index, screen)


def _add(args: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    def show(done: int, total: int, name: str) -> None:
        size = min(_BAR, columns() // 3)
        bar = "█" * (done * size // max(1, total))
        count = f"{done:>{len(str(total))}}/{total}"
        rest = columns() - size - len(count) - 4
        whole, far = _FAR.sub("", name), _FAR.search(name)
        within = far[0] if far else ""
        screen.replace(f"{bar:░<{size}} {count}  {truncate(Path(whole).name, rest - width(within))}{within}" if name else "")

    done = pipeline.add(*args.what, progress=show, forget=args.forget)
    for path, problem in done.problems.items():
        screen.note(f"✗ {path}: {translate(problem)}", "red")
    if done.again:
        count = len(done.again)
        screen.tell(f"{count} read again with a newer reader", f"新しい読み取り方式で {count} 件を読み直しました")
    if done.passed:
        screen.note(_unread_files(done))
    screen.tell(
        f"{len(done.added)} read, {len(done.unchanged)} unchanged, {len(done.removed)} removed; "
        f"{many(len(pipeline), 'passage')} in {pipeline.path}",
        f"追加 {len(done.added)}、変更なし {len(done.unchanged)}、削除 {len(done.removed)}。"
        f"{pipeline.path} に {len(pipeline)} 件",
    )
    if not (done.added or done.unchanged or done.removed or done.problems):
        screen.tell("no files that can be read were found", "読み込めるファイルが見つかりません", colour="red")
        return FAILED
    return FAILED if done.problems and not done.added and not done.unchanged else DONE


def _unread_files(done: Added) -> str:
    """Return a line about skipped files: `12 .py, 3 .doc`."""
    most = [f"{count} {ending}" for ending, count in done.passed.most_common(_ENDINGS)]
    listed = ", ".join([*most, *(["…"] if len(done.passed) > _ENDINGS else [])])
    return say(f"skipped, because these types are not supported: {listed}", f"未対応の種類のため読み込まなかったもの: {listed}")


def _list(args: argparse.Namespace, index: Index, screen: Screen) -> int:
    files = index.files()
    for row in files:
        screen.say(f"{row.chunks:>6}  {row.path}" + (f"  ✗ {row.problem}" if row.problem else ""))
    if not files:
        screen.tell(
            f"no documents yet. Add some with: {this_command()} docs add FOLDER",
            f"まだ文書がありません。次のコマンドで追加できます: {this_command()} docs add フォルダー",
        )
    return DONE


def _search(args: argparse.Namespace, pipeline: RAGPipeline, screen: Screen) -> int:
    hits = pipeline.search(" ".join(args.what), args.number)
    for hit in hits:
        _passage(hit, screen, f"  ({hit.score:.2f})")
    if not hits:
        screen.tell("nothing was found", "見つかりませんでした")
    return DONE if hits else FAILED


def _show(args: argparse.Namespace, index: Index, screen: Screen) -> int:
    _passage(find_cited(" ".join(args.what), index), screen)
    return DONE


def _passage(hit: Hit, screen: Screen, more: str = "") -> None:
    place = ", ".join([part for part in (hit.heading, place_text(hit.place)) if part])
    screen.say_in("cyan", hit.cite)
    screen.say(f"    {hit.source}{f': {place}' if place else ''}{more}")
    for line in hit.text.splitlines():
        for row in wrap_line(line, columns() - 6) if screen.out.isatty() else [line]:
            screen.say(f"    {row}")


_UNITS = (
    (re.compile(r"^line (\d+)"), r"\1 行目"),
    (re.compile(r"^pages? ([\d-]+)"), r"\1 ページ"),
    (re.compile(r"^paragraph (\d+)"), r"\1 段落目"),
    (re.compile(r"^slide (\d+)"), r"スライド \1"),
    (re.compile(r", notes$"), "、ノート"),
    (re.compile(r"^sheet (.*), row (\d+)$"), r"シート \1、\2 行目"),
)


def place_text(place: str) -> str:
    """Return the place of a passage in its file, in the user's language."""
    for english, nihongo in _UNITS if japanese() else ():
        place = english.sub(nihongo, place)
    return place


def _remove(args: argparse.Namespace, index: Index, screen: Screen) -> int:
    gone = {path for name in args.what for path in index.below(name) or [whole_document(name, index)]}
    index.remove(gone)
    screen.tell(f"{many(len(gone), 'file')} removed", f"{len(gone)} 件のファイルを削除しました")
    return DONE
