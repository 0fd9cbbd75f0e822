"""A question as a text."""

from __future__ import annotations

from ..events import Asked
from ..notices import Notice, notice
from .answers import is_yes_or_no


def question_text(question: Asked) -> str:
    """Return a question with its options, for a protocol that shows only yes and no."""
    if not question.options or is_yes_or_no(question.options):
        return question.prompt
    options = ", ".join(question.options)
    return notice("serve.choose", "{content} Options: {options}.", content=question.prompt, options=options)


def question_in_words(run_id: str, question: Asked) -> Notice:
    """Return a question as a message that the user answers in words. Its code says which question of which run it is."""
    code = run_code(run_id) + _digest(f"{run_id}\0{question.key}")[:4]
    return notice("serve.question", "{content} (question {code})", content=question_text(question), code=code)


def run_code(run_id: str) -> str:
    """Return the part of the code of a question that is the same for all questions of the run."""
    return _digest(run_id)[:8]


def _digest(text: str) -> str:
    from hashlib import sha256  # slow to load, and rarely needed

    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
