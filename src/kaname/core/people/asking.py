"""A question as a text."""

from __future__ import annotations

from ..events import Asked
from ..notices import notice
from .answers import is_yes_or_no


def question_text(question: Asked) -> str:
    """Return a question with its options, for a protocol that shows only yes and no."""
    if not question.options or is_yes_or_no(question.options):
        return question.prompt
    options = ", ".join(question.options)
    return notice("serve.choose", "{content} Options: {options}.", content=question.prompt, options=options)
