"""Find how a user wants to be answered in corrections and ratings, by rules: the language, the length and the tone."""

from __future__ import annotations

import re

from .lessons.history import is_correction

_LASTS = re.compile(r"\b(?:always|never|from now on|in (?:the )?future)\b|いつも|常に|今後|これから(?:は|も)", re.I)
_LANGUAGE = re.compile(
    r"(?i:\b(?:answer|reply|respond|write|speak)\b)[^.!?。]{0,30}?\bin (?P<name>[A-Z][a-z]+)\b"
    r"|(?P<japanese>[一-龯ァ-ヶー]{1,8}語)で(?:答|書|話|返|回答|お願|説明)"
)
_STYLES = (
    ("length", "brief", r"\b(?:shorter|too long|(?:be|more) (?:brief|concise)|keep it short)\b|短く|簡潔|長すぎ"),
    ("length", "detailed", r"\b(?:more detail(?:ed|s)?|too short|longer)\b|詳しく|詳細に|短すぎ"),
    ("tone", "polite", r"\b(?:be|more) (?:polite|formal)\b|丁寧に|敬語で"),
    ("tone", "casual", r"\b(?:be|more) (?:casual|informal)\b|くだけた|カジュアルに"),
)


def preferences_in(text: str, *, lasting: bool = False) -> dict[str, str]:
    """Return entries of a profile that a text asks for: `{"language": "Japanese", "length": "brief"}`.

    `lasting`: the text is about all answers, like the note of a rating. Otherwise only a correction, or a message that says
    that it is to hold from now on, is read: "a shorter poem" is a wish for one answer.
    """
    if not lasting and not is_correction(text) and not _LASTS.search(text):
        return {}
    found = {about: value for about, value, words in _STYLES if re.search(words, text, re.I)}
    if language := _LANGUAGE.search(text):
        found["language"] = language["name"] or language["japanese"]
    return found
