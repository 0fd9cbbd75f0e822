"""Read requests to forget something, or not to keep it: the verb, the form of the request, and what it is about.

Doubt goes to one side: a sentence that may be such a request is not stored, and only what surely is one deletes something.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from ..tools.search.tokenize import query_terms, terms

_MEANT = 0.6  # of what is to be forgotten: as much of it a sentence must have
_LONGEST, _OVERLAP = 1_000, 200  # characters of a sentence that are looked at together
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[!?])(?=[ぁ-んァ-ヶ一-龥])|(?<=[。！？])|\n+")
_POINTS = re.compile(r"(?:and\s+|but\s+)?(?:it|its|that|this|these|those|they)\b|(?:それ|これ|あれ|その|この|あの)", re.I)
_PARTICLE = re.compile(r"[のがはをにでとも]")

# English: a verb in its base form, and who is to do it, which stands before it in the clause.
_VERB = re.compile(
    r"\b(?:(?P<forget>forget|unlearn|pretend)|(?P<keep>remember|memori[sz]|stor|sav|keep|record|retain|note)e?|"
    r"(?P<remove>delet|remov|eras|wip|purg|disregard|ignor|scratch|get\s+rid\s+of|(?:deletion|removal|erasure)\s+of)e?|"
    r"(?P<past>forgot|deleted|removed|erased|wiped))(?P<ing>t?ing)?\b(?![-'’])",
    re.I,
)
_BREAK = re.compile(r"[,;:.!?…()\"“”]|\s[-–]+\s|—|\b(?:so|please|kindly|then|(?:forget|fail|hesitate)\s+to)\b", re.I)
_JOINED = re.compile(r"\b(?:and|or|but)\b", re.I)
_NOT = re.compile(r"\bdo(?:\s+not|n['’]?t)\b|\b(?:not|never|no|stop|without|avoid|cannot)\b|(?<=\w)n['’]t\b", re.I)
_WHY_NOT = re.compile(r"\s*why\s+(?:don['’]?t|not)\b", re.I)
_SUPPOSED = re.compile(
    r"\s*(?:how|why|when|where|if(?!\s+you\s+(?:can|could|will|would))|unless|before|after|lest|because|since|do|does|did|have|has|had)\b",
    re.I,
)
_YOU = re.compile(r"\b(?:your?|let['’]?s|let\s+us)\b|\b(?:can|could|shall|should|may|will|would)\s+(?:we|it)\b", re.I)
_BIDDING = re.compile(  # could you …, you must …, I want you to …, let's …; "you never remember it" states something
    r"\b(?:can|could|will|would|may|if|want|like|need|ask|request)\b.*\byour?\b|"
    r"\byou\s+(?:can|could|may|must|mustn['’]t|needn['’]t|need\s+not|should(?:n['’]t)?|shall|to|(?:need|have|ought)\s+to)\b|\blet['’]?s\b|\blet\s+us\b|\b(?:we|it)\b|"
    r"\bfor\s+you\s+to\b",
    re.I,
)
_COMPLAINT = re.compile(r"['’]t\s+you\b|\bever\b", re.I)
_OTHERS = re.compile(
    r"\b(?:i|we|he|she|they|it|who|people|everyone|is|are|was|were|does|did|has|have|had|will|wo|would|can?|could|must|should)\b",
    re.I,
)
_WISH = re.compile(
    r"\b(?:want|wish|like|love|need|prefer|hope|ask(?:ed|ing)?|request|demand|say|said|mean|meant|tell|told|repeat)\b", re.I
)
_NOUN = re.compile(r"\b(?:my|our|his|her|their|the|a|an|some|most|many|these|those)\b", re.I)  # a subject
_MIND = re.compile(r"\b(?:mind|about|consider|your)\s*$", re.I)  # would you mind …ing, how about …ing
_WISHED = re.compile(r"\b(?:if|rather|wish|prefer)\s+you\s*$", re.I)  # I would rather you deleted it
_DONE = re.compile(
    r"\b(?:forgotten|deleted|erased|removed|wiped|(?P<kept>stored|saved|kept|recorded|remembered|retained))\b", re.I
)
_ASKS = re.compile(
    r"\b(?:want|wish|like|needs?|get|have|(?:is|has|ought)\s+to|should|must|can|could|let|please|sure|ask(?:ing)?)\b", re.I
)
_BE = re.compile(r"(?:\s+(?:to|be|is|are|not))+\s*$", re.I)
_WAS = re.compile(r"\b(?:was|were|been)\b", re.I)

# What it is about: without the words that are about the telling ("the PIN I gave you"), or about the memory.
_I_TOLD = (
    r"(?:i|we)(?:['’](?:ve|d))?\s+(?:(?:have|had|just|already|once|also|never|didn['’]t)\s+)*"
    r"(?:said?y?|told|tell|gave|given?|mention(?:ed)?|sent|shared|wrote|typed|entered|showed|shown)(?:\s+(?:(?:to|with)\s+)?you)?"
)
_YOU_KNOW = r"you(?:['’]ve|\s+have)?\s+(?:know|have|remember(?:ed)?|learn(?:ed|t)|stored|saved|kept)"
_ABOUT = re.compile(rf"^(?:(?:about|that|what|everything|anything|all|{_I_TOLD}|{_YOU_KNOW})(?:\s+|$))+", re.I)
_RELATIVE = re.compile(
    rf"(?<=\w)\s+(?:(?:that|which)\s+)?(?:{_I_TOLD}|(?:i|we)\s+\w+\s+(?:(?:to|with)\s+)?you)\b.*$", re.I | re.S
)
_MEMORY = re.compile(r"\s*\b(?:(?:from|in|out\s+of)\s+)?(?:your\s+|the\s+)?memor(?:y|ies)\b.*$", re.I | re.S)
_ELSEWHERE = re.compile(r"\b(?:from|off|out\s+of)\b|から", re.I)
_THAT = re.compile(
    r"(?:\b(?:this|that|it|those|these|them|everything|anything|any|all|of|please|ok|okay|now|again|me|us|for\s+me)\b|"
    r"\b(?:my|our|the)\s+(?:last|previous|earlier)\s+(?:message|sentence|remark|words?)\b|\W)*$",
    re.I,
)
_FILLER = re.compile(
    r"(?:[\s,]+(?:please|(?:right\s+)?now|immediately|at\s+once|asap|again|completely|entirely|forever|for\s+(?:ever|good|me)|too|"
    r"as\s+well|any\s?more|thanks?(?:\s+you)?|ok|okay|then))+$",
    re.I,
)
_MINE = re.compile(r"\b(?:my|our|mine|i|me)\b", re.I)
_POLITE = re.compile(r"\b(?:please|kindly|you)\b", re.I)
_FINITE = re.compile(
    r"\b(?:is|are|was|were|am|has|have|had|will|would|can|could|should|i|we|he|she|they|it)\b|['’](?:m|re|ve|ll|d)\b", re.I
)
_COMMA = re.compile(r"\s*[,;、，；]\s*|\s+[-–—]+\s+")
_AND = re.compile(r"\s+(?:and|or)\s+|^(?:and|or)\s+|(?<=[一-龥ァ-ヶー])[とや・](?=[一-龥ァ-ヶー])", re.I)

# Japanese: the stem of a verb, and after it the form of a request.
_OVER_JA = r"(?!た(?!ら)|った|なかった|まし|ませんでし|くな)"  # it was so, or is not wanted
_ASK_JA = (
    rf"(?:くださ|下さ|くれ|ほし|欲し|もらえ|いただけ|いただき|頂け|頂き){_OVER_JA}|もらいた|ちょうだい|頂戴|お願い|"
    r"(?:もらって|いただいて|頂いて)も?(?:いい|良い|よい|よろし|構|かまわ|大丈夫)"
)
_MAY_JA = r"も?(?:いい|良い|よい|構いませ|構わな|かまわな|かまいませ|結構|大丈夫)(?!.*か[。?？]?$)"
_END_JA = r"[ねよな]*[。.!！?？…」\s]*$|[ねよ][、,]"
_FORGET_JA = r"(?:忘れ|わすれ)"
_OUT_JA = r"(?:(?:削除|消去|抹消|除去|破棄|無視)を?し|消し|除い|(?:無|な)かったことにし)"
_SWITCH_JA = ("消し", "除い")  # also said of lamps and pictures
_NOT_KEPT_JA = (
    rf"(?:覚え(?:てい|ておか)?|(?:記憶|記録|保存|メモ|保持)し|残さ)(?:ないで(?:おいて)?(?:{_ASK_JA}|{_END_JA})|"
    rf"なくて{_MAY_JA}|ず(?:に|とも)|ないように)|(?:覚え(?:る|ておく)|(?:記憶|記録|保存|メモ|保持)する|残す)必要[はが]?(?:な|あ|ご)|"
    r"(?:記憶|記録|保存|保持)[はも]?(?:不要|禁止|しない)"
)
_VERB_JA = re.compile(
    rf"(?P<keep>{_NOT_KEPT_JA})|(?:(?P<forget>{_FORGET_JA})|(?P<remove>{_OUT_JA}))"
    rf"(?:(?:(?:去っ)?て(?:しまって|おいて)?|といて)[、,\s]*(?:{_ASK_JA}|{_MAY_JA}|{_END_JA})|ろ|なさい|ましょう|るように(?!な))"
    rf"|(?P<noun>お忘れ|[おご]?(?:削除|消去|抹消|破棄)を?)(?:{_ASK_JA}|願|いただ|頂|{_END_JA})"
)
_MAYBE_JA = re.compile(rf"(?:{_FORGET_JA}|{_OUT_JA})(?:て(?:もら|いただ|頂)(?!.*困)|たい|て[、,].*て(?:{_ASK_JA}|{_END_JA}))")
_MEMORY_JA = re.compile(r"(?:を|は)?(?:あなたの)?(?:記憶|メモリー?)から.*$")
_TOLD_JA = re.compile(
    r"^(?:(?:さっき|先ほど|先程|さきほど|今|先日|この前|昨日|今日)の|"
    r".*?(?:言っ|話し|教え|伝え|書い|送っ|入力し|述べ|お(?:話し|伝え|教え)し)(?:てい)?た|(?:私|わたし|僕|ぼく|俺|うち)の)+"
)
_TAIL_JA = re.compile(
    r"(?:という|って(?:いう)?|といった|について|に関する|な|の)?(?:の?(?:こと|件|話|情報|の))?(?:に?ついて)?[はをも]?"
    r"(?:もう|全部|すべて|ぜんぶ|どうか|ぜひ|やっぱり|今すぐ)*$"
)
_THAT_JA = re.compile(
    r"(?:これ|それ|あれ|今|さっき|先ほど|先程|前|上|以上|全部|全て|すべて|ぜんぶ|もう|どうか|ぜひ|やっぱり|やはり|では|じゃあ?|"
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


def split(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [one for part in _SENTENCE.split(text) if (one := part.strip())]


def request_in(sentence: str) -> Request | None:
    """Return the request to forget, delete or not keep something that a sentence makes or may make, or None."""
    for start in range(0, max(1, len(sentence) - _OVERLAP), _LONGEST - _OVERLAP):
        piece = sentence[start : start + _LONGEST]
        if found := _english(piece) or _japanese(piece):
            return found
    return None


def words_to_forget(about: str) -> dict[str, float]:
    """Return the words by which what is to be forgotten is recognised. Of Japanese they are those without
    a particle, if there are any."""
    found = query_terms(about)
    return dict.fromkeys([one for one in found if not _PARTICLE.search(one)] or found, 1.0)


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
    found: Request | None = None
    for verb in _VERB.finditer(sentence):
        before, after = sentence[: verb.start()], sentence[verb.end() :]
        asked = _request_in(before, verb)
        memory = bool(_MEMORY.search(after))
        if asked is None or (verb["remove"] and not memory and _ELSEWHERE.search(after)):  # it is in another place
            continue
        found = found or Request()
        what = _subject_of(after)
        if asked == "surely" and _THAT.match(what):
            return Request((), True, _BREAK.sub(",", before).rpartition(",")[0], bool(verb["keep"]))
        if asked == "surely" and (verb["forget"] or memory or _MINE.search(after)):
            return Request(_parts(what, bool(_MINE.search(after) or _POLITE.search(sentence))))
    return found or _passive(sentence)


def _passive(sentence: str) -> Request | None:
    """Return the request of a sentence such as "I want my number deleted" or "My number must not be stored"."""
    done = _DONE.search(sentence)
    before = sentence[: done.start()] if done else ""
    asks = list(_ASKS.finditer(before))
    if not done or not asks or bool(_NOT.search(before)) != bool(done["kept"]) or not _MINE.search(before):
        return None
    after = before[asks[-1].end() :]
    what = next((one for one in (after, before[: asks[-1].start()]) if _MINE.search(one)), "")
    return None if _WAS.search(after) else Request(_parts(_subject_of(_BE.sub("", what)), True))


def _request_in(before: str, verb: re.Match[str]) -> Literal["surely", "perhaps"] | None:
    """Return whether a verb is asked for, by the words before it in its clause."""
    if verb["past"]:
        return "surely" if _WISHED.search(before) else None
    *earlier, own = _JOINED.split(_BREAK.split(before)[-1])
    if _WHY_NOT.match(own):
        return None if verb["keep"] else "surely"
    if bool(_NOT.search(own)) != bool(verb["keep"]):
        return None
    bidding = bool(_BIDDING.search(own)) and not _COMPLAINT.search(own)
    own = _NOT.sub(" ", own)
    yours, others = _YOU.search(own), _OTHERS.search(own)
    if verb["ing"]:
        return "surely" if (verb["keep"] or _MIND.search(own)) and (yours or not others) else None
    if _SUPPOSED.match(own):
        return None
    if yours:
        return "surely" if bidding else "perhaps"
    if others:
        return "perhaps" if _WISH.search(own) and not verb["keep"] else None
    return "perhaps" if _NOUN.search(own) or any(map(_OTHERS.search, earlier)) else "surely"


def _subject_of(after: str) -> str:
    """Return the words after the verb, without the telling and the memory."""
    what = _MEMORY.sub("", after).strip(" \t\n.!?…。！？:'\"“”")
    return _FILLER.sub("", _RELATIVE.sub("", _ABOUT.sub("", _FILLER.sub("", f" {what}").strip()))).strip()


def _parts(what: str, personal: bool) -> tuple[str, ...]:
    """Return the things that are named, in parts if it is a list ("my name and address"), up to a clause that states something.

    A single word counts only if it is personal: "forget York" is more often a figure of speech."""
    first, *more = _COMMA.split(what)
    a_list = bool(more) and bool(_AND.search(more[-1])) and not _FINITE.search(what)
    listed = [first, *(more if a_list else [])]
    parts = [] if _FINITE.search(first) else [part for one in listed for part in _AND.split(one)]
    found = [part.strip() for part in dict.fromkeys([*listed, *parts])]
    return tuple([one for one in found if len(query_terms(one)) > (0 if personal else 1)])


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
    told = _TOLD_JA.sub("", what)
    if verb["remove"] in _SWITCH_JA and last.endswith("を") and named == before and told == what and not re.search(r"\d", what):
        return Request()
    return Request(_parts(told or what, True))
