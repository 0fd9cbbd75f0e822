"""What SQLite's and the disk's errors mean to a user, and what to do about them."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from ...core.errors import DiskFailed, JournalCorrupt, JournalError, JournalFull, JournalLocked
from ...core.language import say


def explain(problem: BaseException, path: Path) -> JournalError:
    """Our error for SQLite's, with what to do about it."""
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return JournalFull(
            say(
                f"no room left for the journal {path}: this fact was not written, everything before it is safe; "
                "make room, then resume the run",
                f"ジャーナル {path} の空き容量がありません。この記録は書かれていませんが、それ以前は無事です。"
                "空きを作ってから再開してください",
            )
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalLocked(
            say(
                f"the journal {path} stayed locked by another program; this fact was not written, everything before it is "
                "safe; close what holds the file, then resume the run",
                f"ジャーナル {path} がほかのプログラムにロックされたままです。この記録は書かれて"
                "いませんが、それ以前は無事です。ロックを外してから再開してください",
            )
        )
    if code == sqlite3.SQLITE_IOERR:
        name = getattr(problem, "sqlite_errorname", "")
        return DiskFailed(
            say(
                f"the disk under the journal {path} failed ({problem}, {name}); whether this fact was written is not known, "
                "everything before it is safe; mend the disk, then resume the run",
                f"ジャーナル {path} のディスクでエラーが起きました({problem}, {name})。この記録が書かれたかどうかは不明ですが、"
                "それ以前は無事です。ディスクを直してから再開してください",
            )
        )
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return cannot_open(path, _obstacle(path) or str(problem))
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or "decode to UTF-8" in str(problem):
        return JournalCorrupt(
            say(
                f"the journal {path} is damaged or not a journal ({problem}); nothing was changed. Move it aside and start "
                f'with a new file, or save what can be read with: sqlite3 "{path}" .recover',
                f"ジャーナル {path} は壊れているか、ジャーナルではありません({problem})。何も変更していません。"
                f'別の場所に移して新しいファイルで始めるか、sqlite3 "{path}" .recover で読める部分を救出してください',
            )
        )
    if isinstance(problem, OSError):
        return cannot_open(path, problem.strerror or str(problem))
    what = f"{type(problem).__name__}: {problem}"
    return JournalError(say(f"the journal {path} cannot take this: {what}", f"ジャーナル {path} に書けません: {what}"))


def damaged(path: Path, what: str) -> JournalCorrupt:
    """What was read is not what was written."""
    return JournalCorrupt(
        say(
            f"the journal {path} is damaged: {what}. Nothing was changed; restore a backup, or fork it from an earlier fact",
            f"ジャーナル {path} は壊れています: {what}。何も変更していません。バックアップから戻すか、"
            "それより前の記録から分岐してください",
        )
    )


def _obstacle(path: Path) -> str:
    """Why the file cannot be opened or written, as far as the file system says."""
    if path.is_dir():
        return say("it is a folder", "フォルダーです")
    if path.exists() and not os.access(path, os.W_OK):
        return say("the file may not be written", "ファイルに書き込めません")
    if not os.access(path.parent, os.W_OK):
        return say(
            f"{path.parent} may not be written, and SQLite keeps files beside the journal", f"{path.parent} に書き込めません"
        )
    return ""


def cannot_open(path: Path, why: str) -> JournalError:
    return JournalError(
        say(
            f"the journal {path} cannot be opened: {why}; choose another file with Agent(journal=…) or KANAME_JOURNAL, or "
            'journal="memory" to keep nothing',
            f"ジャーナル {path} を開けません: {why}。Agent(journal=…) か KANAME_JOURNAL で別のファイルを、"
            '記録しない場合は journal="memory" を指定してください',
        )
    )
