"""Read answers. This is the one place that defines what an answer means, for Python, the terminal, the page and every
protocol.

Only a clear yes is a yes. An answer that cannot be read is refused before it is recorded, so that the question stays open.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from ..durations import is_number, is_whole
from ..errors import InvalidState
from ..events import Asked
from ..reading.lazy_regex import lazy_regex
from ..record import record

YES, NO = "yes", "no"
RETRY, SKIP = "retry", "skip"
APPROVAL = "approve:"  # how the key of a question about a call begins, and the name of a rule of `Approve`
FOR_RUN, ALWAYS = "run", "always"
_LASTING = ("for", "where", "until", "by", "run")
OUTBOX = "outbox:"  # how the key of a question begins that is about the calls in the outbox
BATCH = "batch:"  # how the key of a question begins that a provider's batch answers
_POLITE = "(?:する|します|しました|です)?"
_YES = lazy_regex(f"(?:yes|y|ok|okay|true|approved?|allow(?:ed)?|はい|承認|許可|同意|了解){_POLITE}")
_NO = lazy_regex(f"(?:no|n|false|reject(?:ed)?|den(?:y|ied)|declined?|いいえ|いや|拒否|却下|不許可|不承認){_POLITE}")
_AROUND, _AFTER = "\"'`*()[]「」『』“”‘’", ".!。、,"
_NUMBERS = lazy_regex(r"[0-9]+(?:[\s,、]+[0-9]+)*")
_KATAKANA = {code: code - 0x60 for code in range(0x30A1, 0x30F7)}


@record
class Decision:
    """An answer to the question whether a call is allowed. `args`: other arguments to use. `reason`: why it was refused."""

    approved: bool
    args: Mapping[str, Any] | None = None
    reason: str = ""


@record
class Lasting:
    """How long an approval holds: for this run, or always, until it is revoked.

    `where`: conditions on the arguments, by name; None if they must be those that were shown. `until`: when it ends, in seconds
    since 1970, 0 for never. `by`: the person who gave it. `run`: the run in which it was given.
    """

    scope: str
    where: Mapping[str, Any] | None = None
    until: float = 0.0
    by: str = ""
    run: str = ""


@record
class Selection:
    """An answer to the question which of several calls are allowed: their numbers, from 1, or the reason for none."""

    chosen: frozenset[int]
    reason: str = ""


def asks_person(key: str) -> bool:
    """Return False for the key of a question that a provider's batch answers: no person is asked."""
    return not key.startswith(BATCH)


def normalize_answer(text: str) -> str:
    """Return `text` without differences that do not matter in an answer: case, width, spaces, quotes, a final full stop."""
    plain, before = unicodedata.normalize("NFKC", text).casefold(), None
    while plain != before:  # a question mark or a dash changes what is meant, and stays
        before, plain = plain, plain.strip(_AROUND).strip().rstrip(_AFTER)
    return plain


def says(answer: Any) -> bool | None:
    """Return True for a clear yes, False for a clear no, and None for anything else. English and Japanese words are known."""
    if isinstance(answer, bool) or not isinstance(answer, str):
        return answer if isinstance(answer, bool) else None
    word = normalize_answer(answer).translate(_KATAKANA)
    return True if _YES.fullmatch(word) else False if _NO.fullmatch(word) else None


def read_decision(answer: Any) -> Decision | None:
    """Read the answer to an approval. Return None if it is unclear.

    An answer is yes or no, as a word or a bool; any other text, which refuses and gives the reason; `{"args": {…}}`, which
    approves with other arguments; or `{"approved": true or false}`, with `args` or `reason` in addition. An approval whose
    reason says no contradicts itself and is unclear.
    """
    if isinstance(answer, str):
        said = says(answer)
        return Decision(said is True, reason=answer.strip() if said is None else "")
    if isinstance(answer, bool):
        return Decision(answer)
    return _read_form(answer) if isinstance(answer, Mapping) else None


def _read_form(answer: Mapping[str, Any]) -> Decision | None:
    if {*answer} - {"approved", "args", "reason"}:
        return None
    if "approved" not in answer and {*answer} != {"args"}:
        return None
    approved, args, reason = answer.get("approved", True), answer.get("args", {}), answer.get("reason") or ""
    if not isinstance(approved, bool) or not isinstance(args, Mapping) or not isinstance(reason, str):
        return None
    if approved and says(reason) is False:
        return None
    return Decision(approved, args if approved and "args" in answer else None, "" if approved else reason.strip())


def read_refusal(answer: Any) -> str | None:
    """Return the reason if a person declines a question of any kind: `{"approved": false}`, with `reason` in addition.

    Return None for any other answer. The reason may be empty.
    """
    if not isinstance(answer, Mapping) or answer.get("approved") is not False:
        return None
    decision = read_decision(answer)
    return None if decision is None else decision.reason


def read_approval(answer: Any) -> tuple[Decision | None, Lasting | None]:
    """Read the answer to an approval that can hold for later calls, too: `{"approved": true, "for": "run" or "always"}`, with
    `where` (conditions on the arguments) and `until` (a time in seconds since 1970) in addition."""
    if not isinstance(answer, Mapping) or "for" not in answer:
        return read_decision(answer), None
    where, until, by = answer.get("where"), answer.get("until", 0.0), answer.get("by", "")
    usable = answer["for"] in (FOR_RUN, ALWAYS) and (where is None or isinstance(where, Mapping)) and isinstance(by, str)
    if not usable or not is_number(until) or answer.get("approved") is not True or {*answer} - {"approved", *_LASTING}:
        return None, None
    return Decision(True), Lasting(answer["for"], where, float(until), by, str(answer.get("run", "")))


def selection_options(count: int) -> tuple[str, ...]:
    """Return the options of a question about several calls: all, none, or the number of one. Several numbers fit, too."""
    return (YES, NO, *[str(number) for number in range(1, count + 1)]) if count > 1 else (YES, NO)


def read_selection(answer: Any, count: int) -> Selection | None:
    """Read which of `count` calls are allowed. Return None if it is unclear.

    An answer is yes (all) or no (none), one number or several (`"1, 3"`, `[1, 3]`), or any other text, which refuses all and
    gives the reason.
    """
    numbers: Any = answer
    if isinstance(answer, str) and _NUMBERS.fullmatch(text := normalize_answer(answer)):
        numbers = [int(one) for one in text.replace("、", " ").replace(",", " ").split()]
    if is_whole(numbers):
        numbers = [numbers]
    if isinstance(numbers, list | tuple):
        fits = all(is_whole(one, 1, count) for one in numbers)
        return Selection(frozenset(numbers)) if fits and numbers else None
    decision = read_decision(answer)
    if decision is None or decision.args is not None:
        return None
    return Selection(frozenset(range(1, count + 1) if decision.approved else ()), decision.reason)


def choose_option(options: Sequence[str], answer: Any) -> str | None:
    """Return the option that an answer names, or that a yes or a no stands for. Return None if it names none or several."""
    if isinstance(answer, str):
        named = [one for one in options if one == answer] or [
            one for one in options if normalize_answer(one) == normalize_answer(answer)
        ]
        if len(named) == 1:
            return named[0]
    decision = None if isinstance(answer, str) else read_decision(answer)
    said = says(answer) if decision is None or decision.args is not None else decision.approved
    meant = [one for one in options if says(one) is said] if said is not None else []
    return meant[0] if len(meant) == 1 else None


def is_yes_or_no(options: Sequence[str]) -> bool:
    return sorted([str(says(one)) for one in options]) == ["False", "True"]


def can_last(asked: Asked) -> bool:
    """Return True if an approval can hold for later calls as well: a rule of `Approve` demands it, here or in a child run."""
    return asked.about is not None and any(rule.startswith(APPROVAL) for rule in asked.rules)


def check_answer(asked: Asked, answer: Any) -> Any:
    """Return the answer in the form in which it is recorded. Raises `InvalidState` with the accepted answers.

    Only an approval (a question about a call with a yes and a no) accepts a reason or other arguments as well. Any other
    question with options accepts one of them. A call that a crash left in doubt is run again only for the word "retry": a yes
    would not say what it agrees to.
    """
    if asked.in_doubt:
        return _check_settlement(asked.key, answer)
    if answer is None:
        raise InvalidState.of("answer.none", "the answer to {key!r} is empty and was not recorded", key=asked.key)
    if not asked.options:
        return answer
    if asked.about is not None and is_yes_or_no(asked.options):
        read = read_approval(answer)[0] if can_last(asked) else read_decision(answer)
        if read is None:
            raise _unclear(asked.key, answer, '"yes", "no", {"args": {…}} or {"approved": true|false, "reason": "…"}')
        return answer
    if f":{OUTBOX}" in f":{asked.key}":  # a parent puts the child's id before the key
        if read_selection(answer, max(1, len(asked.options) - 2)) is None:
            raise _unclear(asked.key, answer, '"yes", "no", or numbers such as "1, 3"')
        return answer
    if (option := choose_option(asked.options, answer)) is None:
        raise _unclear(asked.key, answer, ", ".join([f'"{one}"' for one in asked.options]))
    return option


def _check_settlement(key: str, answer: Any) -> Any:
    if isinstance(answer, Mapping) and {*answer} == {"result"}:
        return answer
    if (word := choose_option((RETRY, SKIP), answer)) is not None:
        return word
    decision = read_decision(answer)
    refused = says(answer) is False if isinstance(answer, str) else decision is not None and not decision.approved
    if not refused:
        raise _unclear(key, answer, '"retry", "skip" or {"result": …}')
    return SKIP


def _unclear(key: str, answer: Any, wanted: str) -> InvalidState:
    return InvalidState.of(
        "answer.unclear",
        "the answer {answer!r:.200} to {key!r} is not clear and was not recorded. Answer with {wanted}.",
        answer=answer,
        key=key,
        wanted=wanted,
    )
