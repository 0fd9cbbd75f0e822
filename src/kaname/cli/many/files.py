"""The files of `kaname run --batch`: the inputs, and the results, of which each is written once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...core.codec import digest, dump
from ...core.errors import AgentError, ConfigError
from ...core.file_lock import lock_file
from ...run.input import as_turn
from ...run.result import Result
from ..messages import config_error, say, translate

_FIELDS = {"input", "id", "session", "user"}
_TOLD = 10  # bad lines
_BEGINNING = b'{"id":'  # of a result


class Line(NamedTuple):
    """A line of the input file."""

    id: str
    input: Any
    session: str = ""
    user: str = ""


def read_lines(path: Path) -> Iterator[Line]:
    """Yield the inputs of a file that `check_lines` has accepted."""
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if text.strip():
                yield _parse(text, number)


def check_lines(path: Path) -> int:
    """Return the number of inputs in the file. Raises `ConfigError` with the numbers of invalid lines, before anything runs."""
    mistakes, count, seen = list[str](), 0, dict[str, int]()
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if not text.strip():
                    continue
                count += 1
                try:
                    line = _parse(text, number)
                    if line.id in seen:
                        raise ValueError(say(f"the id of line {seen[line.id]} once more: {line.id!r}",
                                             f"{seen[line.id]} 行目と同じ id です: {line.id!r}"))  # fmt: skip
                    seen[line.id] = number
                except (ValueError, AgentError) as problem:
                    mistakes.append(f"{path}:{number}: {translate(problem)}")
    except OSError as problem:
        raise config_error(
            f"{path} cannot be read: {problem.strerror}", f"{path} を読み込めません: {problem.strerror}"
        ) from None
    if mistakes:
        more = (
            [say(f"… and {len(mistakes) - _TOLD} more", f"… ほか {len(mistakes) - _TOLD} 行")] if len(mistakes) > _TOLD else []
        )
        head = say("nothing was run, because lines of the file are wrong:", "誤った行があるため、何も実行していません:")
        raise ConfigError("\n  ".join([head, *mistakes[:_TOLD], *more]))
    return count


def _parse(text: bytes, number: int) -> Line:
    try:
        args = json.loads(text.decode("utf-8-sig" if number == 1 else "utf-8"))
    except (ValueError, RecursionError):
        raise ValueError(say("not JSON in UTF-8", "UTF-8 の JSON ではありません")) from None
    args = {"input": args} if isinstance(args, str) else args
    if not isinstance(args, dict) or "input" not in args:
        raise ValueError(
            say('expected a JSON string, or an object with "input"', 'JSON の文字列か、"input" を持つオブジェクトが必要です')
        )
    if unknown := sorted({*args} - _FIELDS):
        raise ValueError(say(f"unknown fields: {', '.join(unknown)}", f"不明な項目です: {', '.join(unknown)}"))
    named = args.get("id", number)
    more = [args.get("session", ""), args.get("user", "")]
    if (
        isinstance(named, bool)
        or not isinstance(named, str | int)
        or named == ""
        or not all(isinstance(one, str) for one in more)
    ):
        raise ValueError(say("id, session and user must be strings", "id、session、user は文字列で指定してください"))
    if not isinstance(args["input"], str):
        as_turn(args["input"])
    return Line(str(named), args["input"], *more)


class Results:
    """The file of the results. Each line is a result; what a crash has cut off is removed.

    Attributes: done: The ids of the results in the file, with fingerprints of inputs and users. stops: How their runs ended.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.done, self.stops = path, dict[str, str](), dict[str, str]()
        if path.exists() and not path.is_file():
            raise config_error(
                f"{path} is not a file: pass another --out", f"{path} はファイルではありません。別の --out を指定してください"
            )
        self._file: BinaryIO = path.open("a+b")
        try:
            self._lock()
            self._file.truncate(self._read())
        except BaseException:
            self._file.close()
            raise

    def _read(self) -> int:
        """Read the results in the file. Return the end of the last whole line."""
        self._file.seek(0)
        end = 0
        for number, text in enumerate(self._file, 1):
            told, is_torn = _read_result(text), not text.endswith(b"\n")
            if is_torn and text[: len(_BEGINNING)] == _BEGINNING[: len(text)]:
                break
            if told is None or is_torn:
                raise config_error(
                    f"{self.path}:{number} is not a result: pass another --out",
                    f"{self.path}:{number} は結果の行ではありません。別の --out を指定してください",
                )
            fingerprint = digest([told["input"], told.get("user", "")])
            self.done[str(told["id"])], self.stops[str(told["id"])] = fingerprint, str(told.get("stop"))
            end += len(text)
        return end

    def _lock(self) -> None:
        """Refuse a second process, which would write the same results."""
        try:
            lock_file(self._file.fileno())
        except OSError:
            busy = say(f"another process is writing {self.path}", f"別のプロセスが {self.path} に書き込んでいます")
            raise ConfigError(busy) from None

    def has(self, line: Line) -> bool:
        """Return True if the file has the result. Raise `ConfigError` if it has that of another input or user."""
        known = self.done.get(line.id)
        if known is not None and known != digest([line.input, line.user]):
            raise config_error(
                f"{self.path} has the result of another input or user with the id {line.id!r}: pass another --out",
                f"{self.path} には、同じ id {line.id!r} で入力かユーザーが違う結果があります。別の --out を指定してください",
            )
        return known is not None

    def write(self, line: Line, result: Result[Any]) -> None:
        """Append a result in one write, so that a crash leaves a whole line or a torn last one."""
        usage, stop = result.usage, result.stop
        error = None if stop.kind in ("completed", "degraded") else {"type": stop.error, "message": str(stop.summary)}
        data = {
            "id": line.id,
            "input": line.input,
            **({"user": line.user} if line.user else {}),
            "output": result.recorded,
            "stop": stop.kind,
            "usage": {"input": usage.input, "output": usage.output, "cached": usage.cached, "reasoning": usage.reasoning},
            "cost": usage.cost,
            "error": error,
            "run_id": result.run_id,
        }
        self._file.write(dump(data).encode() + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


def _read_result(text: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) and {"id", "input"} <= told.keys() else None
