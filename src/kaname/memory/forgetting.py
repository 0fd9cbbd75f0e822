"""Read requests to forget something, or not to keep it: plain orders and polite questions, and what they name.

A sentence that may be such a request in other words deletes nothing. Rules do not store it; a learning model decides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..tools.search.tokenize import query_terms, terms

_MEANT = 0.6  # of what is to be forgotten: as much of it a sentence must have
_LONGEST, _OVERLAP = 1_000, 200  # characters of a sentence that are looked at together
_POINTS = re.compile(r"(?:and\s+|but\s+)?(?:it|its|that|this|these|those|they)\b|(?:それ|これ|あれ|その|この|あの)", re.I)
_PARTICLE = re.compile(r"[のがはをにでとも]")

# English: an order begins a clause, or follows a polite word or "could you".
_ORDER = re.compile(
    r"(?:^|[,;:.!?…()\"“”]\s*|\s[-–]+\s|—|\b(?:please|pls|kindly|just|then|so|and|but|(?:can|could|will|would)\s+you)\s)\s*"
    r"(?:(?:please|kindly|just|also|now)\s+)*(?:(?P<forget>forget|unlearn)|(?P<remove>delete|remove|erase|wipe|purge|"
    r"disregard|ignore|scratch|get\s+rid\s+of)|(?:do\s+not|don['’]?t|never)\s+(?P<keep>remember|memori[sz]e|store|save|keep|"
    r"record|retain|note))\b(?![-'’])",
    re.I,
)
_FORGETS = re.compile(  # also in other forms, unless it is negated
    r"\b(?<!not )(?<!n['’]t )(?<!never )(?:forg[eo]t|delet|remov|eras|disregard|pretend|get\s+rid)\w*", re.I
)
_KEEPS_NOT = re.compile(
    r"(?:\b(?:not|never|no|without)|n['’]t)\b.*\b(?:remember|memori[sz]|stor|sav|keep|record|retain)\w*", re.I | re.S
)
_TO_SOMEBODY = re.compile(  # it addresses somebody, or wishes something
    r"\b(?:you|your|please|want|wish|like|needs?|(?:should|must)(?:\s+not)?\s+be\s+\w+e[dn]|(?:can|could|shall)\s+we|ask\w*|"
    r"rather|let['’]?s|sure|hesitate|appreciate|memory|without|forget\s+to)\b",
    re.I,
)

# What it is about: without the words that are about the telling ("the PIN I gave you"), or about the memory.
_TELLING = r"(?:i|we)(?:['’](?:ve|d))?\s+(?:(?:have|had|just)\s+)*(?:said|told|mentioned|gave|sent|shared|wrote)\b"
_ABOUT = re.compile(rf"^(?:(?:about|that|what|everything|anything|all|{_TELLING}(?:\s+(?:to\s+)?you)?)(?:\s+|$))+", re.I)
_RELATIVE = re.compile(rf"(?<=\w)\s+(?:(?:that|which)\s+)?{_TELLING}.*$", re.I | re.S)
_MEMORY = re.compile(r"\s*\b(?:(?:from|in|out\s+of)\s+)?(?:your\s+|the\s+)?memor(?:y|ies)\b.*$", re.I | re.S)
_ELSEWHERE = re.compile(r"\b(?:from|off|out\s+of)\b|から", re.I)
_THAT = re.compile(
    r"(?:\b(?:this|that|it|those|these|them|everything|anything|any|all|of|please|ok|okay|now|again|me|us|for\s+me)\b|"
    r"\b(?:my|our|the)\s+(?:last|previous|earlier)\s+(?:message|sentence|remark|words?)\b|\W)*$",
    re.I,
)
_FILLER = re.compile(
    r"(?:[\s,]+(?:please|(?:right\s+)?now|immediately|completely|entirely|forever|too|any\s?more|thanks?(?:\s+you)?|ok|okay))+$",
    re.I,
)
_MINE = re.compile(r"\b(?:my|our|mine|i|me)\b", re.I)
_POLITE = re.compile(r"\b(?:please|kindly|you)\b", re.I)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|am|has|have|had|will|would|can|could|should|i|we|he|she|they|it)\b|['’](?:m|re|ve|ll|d)\b", re.I
)
_COMMA = re.compile(r"\s*[,;、，；]\s*|\s+[-–—]+\s+")
_LIST = re.compile(r"\s*[,;、，；]\s*(?:and\s+|or\s+)?|\s+(?:and|or)\s+|(?<=[一-龥ァ-ヶー])[とや・](?=[一-龥ァ-ヶー])", re.I)

# Japanese: the stem of a verb, and after it the form of a request.
_OVER_JA = r"(?!た(?!ら)|った|なかった|まし|ませんでし|くな)"  # it was so, or is not wanted
_ASK_JA = (
    rf"(?:くださ|下さ|くれ|ほし|欲し|もらえ|いただけ|いただき|頂け|頂き){_OVER_JA}|もらいた|ちょうだい|頂戴|お願い|"
    r"(?:もらって|いただいて|頂いて)も?(?:いい|良い|よい|よろし|構|かまわ|大丈夫)"
)
_MAY_JA = r"も?(?:いい|良い|よい|構いませ|構わな|かまわな|かまいませ|結構|大丈夫)(?!.*か[。?？]?$)"
_END_JA = r"[ねよな]*[。.!！?？…」\s]*$|[ねよ][、,]"
_OUT_JA = r"(?:(?:削除|消去|抹消|除去|破棄|無視)を?し|記憶から消し|なかったことにし)"
_NOT_KEPT_JA = (
    rf"(?:覚え(?:てい|ておか)?|(?:記憶|記録|保存|メモ|保持)し|残さ)(?:ないで(?:おいて)?(?:{_ASK_JA}|{_END_JA})|なくて{_MAY_JA}|"
    r"ず(?:に|とも)|ないように)|(?:覚え(?:る|ておく)|(?:記憶|記録|保存|メモ|保持)する|残す)必要[はが]?(?:な|あ|ご)"
)
_VERB_JA = re.compile(
    rf"(?P<keep>{_NOT_KEPT_JA})|(?:忘れ|(?P<remove>{_OUT_JA}))"
    rf"(?:(?:(?:去っ)?て(?:しまって|おいて)?|といて)[、,\s]*(?:{_ASK_JA}|{_MAY_JA}|{_END_JA})|ろ|なさい|るように(?!な))"
    rf"|(?:お忘れ|[おご]?(?:削除|消去|抹消|破棄)を?)(?:{_ASK_JA}|願|いただ|頂|{_END_JA})"
)
_MAYBE_JA = re.compile(
    r"(?:忘れ|消し|除い|(?:削除|消去|抹消|除去|破棄|無視)を?し)(?:たい|て(?:もら|いただ|頂|ください|くれ(?!な))(?!.*困))"
)
_MEMORY_JA = re.compile(r"(?:を|は)?(?:あなたの)?(?:(?:記憶|メモリー?)から)?$")
_TOLD_JA = re.compile(
    r"^(?:(?:さっき|先ほど|先程|さきほど|今|先日|この前|昨日|今日)の|"
    r".*?(?:言っ|話し|教え|伝え|書い|送っ|入力し|お(?:話し|伝え|教え)し)(?:てい)?た|(?:私|わたし|僕|ぼく|俺|うち)の)+"
)
_TAIL_JA = re.compile(
    r"(?:という|って(?:いう)?|について|に関する|な|の)?(?:の?(?:こと|件|話|情報|の))?(?:に?ついて)?[はをも]?"
    r"(?:もう|全部|すべて|どうか|やっぱり|今すぐ)*$"
)
_THAT_JA = re.compile(
    r"(?:これ|それ|あれ|今|さっき|先ほど|先程|前|上|以上|全部|全て|すべて|もう|どうか|やっぱり|やはり|では|じゃあ?|"
    r"この|その|あの|発言|メッセージ|こと|件|話|内容|情報|文|言った|教えた|伝えた|話した|[のはをもが]|\W)*$"
)


class Request(NamedTuple):
    """A request to forget something, which deletes nothing if it is doubtful.

    `about`: what it names. `bare`: it names nothing ("forget that") and means what was said before it; `before`: the part of
    its sentence that stands before it. `ahead`: it may mean what comes after it ("don't remember this").
    """

    about: tuple[str, ...] = ()
    bare: bool = False
    before: str = ""
    ahead: bool = False

    @property
    def is_doubtful(self) -> bool:
        return not self.about and not self.bare


def request_in(sentence: str) -> Request | None:
    """Return the request to forget, delete or not keep something that a sentence makes or may make, or None."""
    for start in range(0, max(1, len(sentence) - _OVERLAP), _LONGEST - _OVERLAP):
        piece = sentence[start : start + _LONGEST]
        if request := _english(piece) or _japanese(piece):
            return request
    return None


def words_to_forget(about: str) -> dict[str, float]:
    """Return the words by which what is to be forgotten is recognised. Of Japanese they are those without
    a particle, if there are any."""
    words = query_terms(about)
    return dict.fromkeys([one for one in words if not _PARTICLE.search(one)] or words, 1.0)


def without(sentences: Sequence[str], words: Mapping[str, float]) -> list[str]:
    """Return the sentences without those that say what is to be forgotten, and those after them that only point to it.

    `words`: the words of it, with how much each counts. A sentence says it if it has most of the words and all numbers. If
    only all sentences together do, every one goes that has one of the words."""
    says = [_says(one, words) for one in sentences]
    if not any(says) and _says(" ".join(sentences), words):
        says = [bool(words.keys() & set(terms(one))) for one in sentences]
    for place, one in enumerate(sentences):
        says[place] = says[place] or bool(place and says[place - 1] and _POINTS.match(one))
    return [one for one, said in zip(sentences, says, strict=True) if not said]


def _says(text: str, words: Mapping[str, float]) -> bool:
    own, whole = set(terms(text)), sum(words.values())
    numbers = {one for one in words if any(map(str.isdigit, one))}
    return whole > 0 and numbers <= own and sum([words[one] for one in words.keys() & own]) >= _MEANT * whole


def _english(sentence: str) -> Request | None:
    order = _ORDER.search(sentence)
    if order is None:
        maybe = _TO_SOMEBODY.search(sentence) and (_FORGETS.search(sentence) or _KEEPS_NOT.search(sentence))
        return Request() if maybe else None
    after = sentence[order.end() :]
    memory, mine = bool(_MEMORY.search(after)), bool(_MINE.search(after))
    if order["remove"] and not memory and _ELSEWHERE.search(after):  # it is in another place
        return None
    what = _subject_of(after)
    if _THAT.match(what):
        return Request((), True, sentence[: order.start()].rstrip(" ,;:-–—"), bool(order["keep"]))
    if order["forget"] or memory or mine:
        return Request(_parts(what, mine or bool(_POLITE.search(sentence))))
    return Request()


def _subject_of(after: str) -> str:
    """Return the words after the verb, without the telling and the memory."""
    what = _MEMORY.sub("", after).strip(" \t\n.!?…。！？:'\"“”")
    return _FILLER.sub("", _RELATIVE.sub("", _ABOUT.sub("", _FILLER.sub("", f" {what}").strip()))).strip()


def _parts(what: str, personal: bool) -> tuple[str, ...]:
    """Return the things that are named, in parts if it is a list ("my name and address"), up to a clause that states something.

    A single word counts only if it is personal: "forget York" is more often a figure of speech."""
    if _FINITE.search(what):
        what = _COMMA.split(what)[0]
    parts = [what] if _FINITE.search(what) else [what, *_LIST.split(what)]
    return tuple([one for part in dict.fromkeys(parts) if len(query_terms(one := part.strip())) > (0 if personal else 1)])


def _japanese(sentence: str) -> Request | None:
    verb = _VERB_JA.search(sentence)
    if verb is None:
        return Request() if _MAYBE_JA.search(sentence) else None
    before = sentence[: verb.start()]
    named = _MEMORY_JA.sub("", before)
    if verb["remove"] and named == before and _ELSEWHERE.search(before):
        return None
    *earlier, last = re.split(r"[、,，]\s*|(?<=[すただるい](?:が))|(?<=(?:から|ので|けど))", named)
    if _THAT_JA.match(last):
        return Request((), True, "、".join(earlier), bool(verb["keep"]))
    what = _TAIL_JA.sub("", last, count=1)
    return Request(_parts(_TOLD_JA.sub("", what) or what, True))
