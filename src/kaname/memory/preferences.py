"""Find what a user says about how to be answered: by words, and kept in the user's own words."""

from __future__ import annotations

import re

from ..core.sentences import split_sentences

_ABOUT = {
    "language": r"\b(?:answer|reply|respond|write|speak)\b.{0,30}?\bin (?-i:[A-Z])[a-z]+\b|[一-龯ァ-ヶー]{1,8}(?<!敬)語で",
    "length": r"\b(?:short|long|brief|concise|detail)(?:s|er|ly|ed)?\b|短[いくすめ]|長[いくすめ]|簡潔|詳し|詳細",
    "tone": r"\b(?:polite|formal|informal|casual)(?:ly)?\b|丁寧|敬語|くだけ|カジュアル",
}
_LASTS = r"(?:from now on|in (?:the )?future|always|never)"
_NOT_ASKED = r"(?!(?:i|we|you|he|she|it|they|there|my|our|your|his|her|its|their|the|an?|this|that|these|those)\b)"
_ASKED = re.compile(  # in English a verb comes first, and no subject; in Japanese, a request is how the sentence ends
    rf"(?:please,? )?{_LASTS},? (?:please )?{_NOT_ASKED}.*|(?:please )?{_NOT_ASKED}\w+ .*\b(?:from now on|in (?:the )?future)"
    r"|(?:今後|これから|いつも|常に)(?!の(?!回答|返答|返事|返信|答え))(?:は|も)?、?.*(?:[てで]|ください|下さい|お願い(?:し|いたし)ます|ほしいです|欲しいです|ように)",
    re.I,
)


def preferences_in(text: str, *, lasting: bool = False) -> dict[str, str]:
    """Return the user's sentences about how to be answered, by what they are about: `language`, `length` or `tone`.

    The sentences are returned as they are. What a user wants is not concluded from them: "never answer in French" names
    French. Only sentences that ask for something from now on count, and no questions; with `lasting`, all that are no question,
    because the text is about answers as it is, like the note of a rating.
    """
    found = dict[str, str]()
    for said in split_sentences(text):
        asked = said.rstrip(".!。！ ")
        if not asked.endswith(("?", "？", "か")) and (lasting or _ASKED.fullmatch(asked)):
            found |= {about: said for about, words in _ABOUT.items() if re.search(words, said, re.I)}
    return found
