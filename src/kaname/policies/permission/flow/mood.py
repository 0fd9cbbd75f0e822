"""The mood of a sentence: does it ask for an action, or does it only speak of one? English and Japanese.

In English, the verb must open a clause ("…, then delete it") or follow a form of request ("could you", "I want you to"). A
question or a statement opens no clause. In Japanese, the verb must be a whole word with an ending that requests (〜して,
〜してください, 〜をお願い, 〜したい), or lead on with 〜て to a clause that does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property, lru_cache

from ....core.sentences import split_sentences

_LONGEST = 2000  # characters of a sentence
_BULLET = r"(?:[-*•]+|\(?\d{1,2}[.)])\s+"
_SOFTLY = (
    r"(?:(?:please|kindly|also|then|now|just|next|finally|first|afterwards|again|simply|maybe|perhaps|either|ok|okay|so|hi|hello"
    r"|thanks|do|go|go ahead and|and|but|or|if (?:so|not|yes|possible)|after that|in that case"
    r"|(?!reply|apply|supply|comply|rely|fly)\w+ly)\b[,\s]+)*"
)
_SOFTENERS = re.compile(r"[,\s]*" + _SOFTLY, re.IGNORECASE)
_WH = r"who|whose|whom|what|which|when|where|why|how|whether"
_QUESTION = re.compile(
    r"(?:and|but|so|also)?\s*(?:(?:who|whose|whom|what|which|where|why|how|whether)\b|(?:is|are|was|were|am|do|does|did|has|have|had|can"
    r"|could|will|would|should|may|might)(?:n['’]t)? (?:i|you|he|she|it|we|they|there|this|that|these|those|the|an?|my|our"
    r"|any\w*|some\w*|(?-i:[A-Z])\w*)\b)",
    re.IGNORECASE,
)
_HEAD = r"(?:^|[,;:!—]\s*|\b(?:and|but|so|then|also|hi|hey|hello|please|maybe)\s+)"  # of a clause
_ME = r"\b(?:i|we)(?:['’]d| would)?(?: really| also)? (?:want|need|like|love|wish|ask|expect)"
_FORM = re.compile(  # what follows is requested, also in a question
    rf"{_HEAD}(?:can|could|would|will) you\b|\bplease\b|{_ME}(?: for)? you to\b", re.IGNORECASE
)
_WISH = re.compile(  # what follows is requested, unless the sentence is a question
    rf"{_ME} to\b|\bhelp (?:me|us)(?: to)?\b|\blet['’]?s\b|{_HEAD}(?:you (?:should|must|can|may|need to|have to)"
    r"|make sure (?:to|(?:that )?you)|(?:be sure|remember|feel free|proceed|go on|your (?:task|job) is) to)\b",
    re.IGNORECASE,
)
_GERUND = re.compile(r"\b(?:would|do) you mind\b|\b(?:how|what) about\b", re.IGNORECASE)
_JOINT = re.compile(
    r"(?P<strong>[;:—–]|\s-\s)\s*|(?P<then>,?\s(?:and )?then)\s|(?P<comma>,)\s*(?:(?:and|or|but)\s+)?|\s(?P<and>and|or|but)\s",
    re.IGNORECASE,
)
_ABLE = re.compile(  # a bare verb that follows later may belong to this: "who can read and delete"
    rf"\b(?:can|could|may|might|must|shall|should|will|would)\b|\b(?:{_WH}|wants?|wanted|tr(?:y|ies|ied)|asked|told|supposed|able|allowed"
    r"|going|ha[sd]|have|needs?|needed|used|plan(?:s|ned)?|rights?|permission) to\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"(?:i|we|you|he|she|it|they|there|this|that|these|those|the|an?|my|our|your|his|her|its|their|some|all|every|each)(?:['’]\w+)?\s",
    re.IGNORECASE,
)
_WHILE = re.compile(
    r"(?:if|when(?:ever)?|once|after|before|as|since|because|unless|while|although|in case|for)\b", re.IGNORECASE
)
_OBJECT = (  # it begins what a verb acts on, and follows no noun
    r"(?-i:[A-Z])|[\"“'#]|\S*(?:[@/\d]|\.\w)|(?:an?|the|my|our|your|his|her|its|their|this|that|these|those|it|them|him|me|us"
    r"|all|both|every|each|any|some|another|everything|everyone|one|two|three|four|five|six|seven|eight|nine|ten|to)\b"
)
_NOUNS = re.compile(  # verbs that are nouns or adjectives, too
    r"answer|book|call|change|clear|close|comment|contact|copy|correct|download|drop|edit|e-?mail|end|grant|mail|message|move|note"
    r"|open|order|phone|plan|post|print|profile|purchase|record|refund|reply|return|run|schedule|set|share|standing|start|stop"
    r"|store|table|text|transfer|update|upload|wire"
)
_USUAL = re.compile(  # verbs of most requests
    r"(?:read|look|show|find|search|check|list|open|see|get|fetch|tell|compare|explain|summari[sz]e|describe|translate|count|give|view"
    r"|review|extract|browse|visit|remind|send|e?-?mail|write|reply|forward|pay|transfer|buy|order|book|reserve|cancel|delete|remove"
    r"|create|make|add|save|update|change|set|move|rename|copy|share|post|run|start|stop|invite|schedule|draft|put|call|print)\b",
    re.IGNORECASE,
)
_REQUESTING = (  # after て or で
    r"(?:下さい|ください|ちょうだい|頂戴)(?!と(?!思)|って)|くれ(?=よ|な|ます|ません|(?:る|ない)(?:か|の?\?|$|[、。])|る?と[助嬉うあ]|[、。!]|$)"
    r"|(?:もらえ|いただけ|頂け)(?=ます(?!と)|ません|(?:る|ない)(?:か|の?\?|$|[、。])|ると?[助嬉うあ])"
    r"|(?:ほし|欲し|もらいた|いただきた|頂きた)い(?=です(?!か)|ん[でだ]|の[でだ]|けど|と思|が、|[、。!よな]|$)|お(?:け|こう|きたい)(?=[、。!よ]|$)"
)
_CLOSE = r"[ねよなー~〜…)\s]*(?:[。.!?]|$)"
_SERVING = r"(?:(?:お|置)いて|あげて|みて|見て|やって|きて|しまって)*"
_LEADS = (
    r"(?:から|、|,\s?|\s)|(?=[一-鿿ァ-ヶA-Za-z0-9「#@/]|その|それ|すぐ|あと|ま[たず])(?!良|大丈夫|構|問題|頂|欲|下|居|来|有)"
)
_TE_END = re.compile(rf"{_SERVING}(?:(?P<final>{_REQUESTING}|{_CLOSE})|(?P<leads>{_LEADS}))")
_LIGHT = r"(?:を|も|だけ)?(?:し|やっ|行っ)|(?:を|も)(?:入れ|取っ|とっ|かけ|掛け|出し|送っ|つけ|付け|残し|打っ|返し|書い|作っ)"
_ASKING = (
    r"(?:よろしく|宜しく|お願い|おねがい|願いたい|願います|頼[むみめん]|たの[むみ])"
    r"(?!し(?:た|て(?:い|る|た|あ)|まし)|され|と(?!思)|って)"
)
_WISHED = r"たい(?=です(?!か)|ん[でだ]|の[でだ]|けど|と思|が、|[、。!よな]|$)(?!.*(?:どう|方法|何|いつ|どこ|誰|いくら))"
_HOW = r"(?:の(?:手続き?|手配|処理|ほう|方))?"
_ENDS = re.compile(  # of a whole sentence
    rf"(?:(?<!つい)て|んで|いで|(?:て|で)(?:おいて)?(?:{_REQUESTING}).*|{_ASKING}.*|なさい|せよ|しろ|こと|ましょう|たい(?:です|のですが|んだけど)?"
    rf"|を[^、。]*[一-鿿]{{2}}){_CLOSE}"
)
_REPORTED = re.compile(  # between a verb in て and the request: it belongs to something that is only spoken of
    r"か(?:どうか)?[、,]?(?:教|調|確認|知|見|聞|説明|答|まとめ|を)|[っいんしれえ]た(?=[一-鿿ァ-ヶA-Za-z「#]|か|の|ら|り)|んだ(?=[一-鿿ァ-ヶ]|か)"
    r"|て(?:いる|いた|る|た)|という|と言|と書"
)
_DOER = re.compile(r"(?:さん|様|氏|くん|ちゃん|君|長|先生|誰|だれ|彼ら?|彼女|私|僕|俺|者|員)[がはも][^、。]*$")
_WHEN_OR_HOW_MANY = "部日朝晩夜週月年時分度回個枚本冊件通円台人名接速急括緒後前中内斉全"  # 全部消して; 見送って is another word
_KANA_END = re.compile(r"[ぁ-ん]$|[払込出消当]$|^[一-鿿]$")


class UserSentence:
    """A sentence of the user without what it quotes, and the places in it where a requested verb can stand."""

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        self._lower = self.text.lower()

    @cached_property
    def _is_question(self) -> bool:
        return self.text.endswith("?") or _QUESTION.match(self.text) is not None

    @cached_property
    def _openings(self) -> list[tuple[int, bool]]:
        return list(self._find_openings())

    def _find_openings(self) -> Iterator[tuple[int, bool]]:
        """Yield where a clause can begin with a requested verb, and whether a noun is as likely there."""
        text, forms = self.text, [_FORM] if self._is_question else [_FORM, _WISH]
        found = [one for form in forms for one in form.finditer(text)]
        yield from [(self._past_softeners(one.end()), False) for one in found]
        if self._is_question and not found:
            return
        plain = text  # without the forms: their "can" and "to" are the request
        for one in found:
            plain = plain[: one.start()] + "." * (one.end() - one.start()) + plain[one.end() :]
        begun = re.match(_BULLET, text)
        start = 0 if begun is None else begun.end()
        if not self._is_question:
            yield self._past_softeners(start), False
        since = min([one.start() for one in found]) if self._is_question else start
        waits_for_comma = bool(_WHILE.match(text, start))
        for joint in _JOINT.finditer(text, since):
            before = plain[since : joint.start()]
            place = self._past_softeners(joint.end())
            if joint["strong"] or (waits_for_comma and (joint["comma"] or joint["then"])):
                since, waits_for_comma = joint.end(), False
                if not self._is_question:
                    yield place, False
            elif waits_for_comma or _ABLE.search(before):
                continue
            elif _WHILE.match(text, place):  # "…, and if they do, …"
                since, waits_for_comma = place, True
            elif joint["comma"] or not _SUBJECT.match(before):
                yield place, not joint["then"]

    def _past_softeners(self, place: int) -> int:
        match = _SOFTENERS.match(self.text, place)
        return place if match is None else match.end()

    def asks_for(self, verb: str) -> bool:
        """Return True if the sentence asks somebody to do this. `verb`: in lower case; in Japanese a stem or a noun."""
        if verb.isascii():
            return self._orders(verb)
        return verb in self.text and any(self._ends_in_request(found) for found in _japanese(verb).finditer(self.text))

    def _orders(self, verb: str) -> bool:
        if verb.removesuffix("e") not in self._lower:
            return False
        base, listed, with_object, made, gerund = _english(verb)
        doubtful = with_object if _NOUNS.fullmatch(verb) else listed
        for place, maybe_noun in self._openings:
            if (doubtful if maybe_noun else base).match(self.text, place) or made.match(self.text, place):
                return True
        return any(gerund.match(self.text, one.end()) for one in _GERUND.finditer(self.text))

    def _ends_in_request(self, found: re.Match[str]) -> bool:
        """Return True for a verb with a requesting ending, or one in て whose sentence goes on to a request."""
        if found["te"] is None:
            return True
        end = _TE_END.match(self.text, found.end())
        if end is None or end["final"] is not None:
            return end is not None
        rest = self.text[end.end() :]
        if not _ENDS.search(rest) or _DOER.search(self.text[: found.start()]):
            return False
        return end["leads"].strip() in ("、", ",") or not _REPORTED.search(rest)

    @property
    def asks_something(self) -> bool:
        """Return True if the sentence asks a question, or for one of the usual actions."""
        if self._is_question or _ENDS.search(self.text) or re.search(r"(?:です|ます|した|の|る)か。?$", self.text):
            return True
        return any(_USUAL.match(self.text, place) for place, _ in self._openings)


def sentences_in(text: str) -> list[UserSentence]:
    """Return the sentences of a text. Line breaks end one, too. Of a very long one, only its two ends are looked at."""
    pieces = split_sentences(text)
    kept = [[one] if len(one) <= _LONGEST else [one[: _LONGEST // 2], "…" + one[-_LONGEST // 2 :]] for one in pieces]
    return [UserSentence(one) for pair in kept for one in pair]


def ask_for(sentences: Iterable[UserSentence], verbs: Iterable[str]) -> bool:
    """Return True if some sentence asks for one of these verbs."""
    wanted = [verb.lower() for verb in verbs if verb]
    return any(sentence.asks_for(verb) for sentence in sentences for verb in wanted)


@lru_cache(512)
def _english(verb: str) -> tuple[re.Pattern[str], ...]:
    """Return patterns for a verb that begins a clause: anywhere, in a list, before an object, as a noun, and with -ing."""
    word = re.escape(verb)
    told = {"tell": r"\s+(?:me|us)\b", "answer": r"\s+(?:me|us)\b", "inform": r"\s+(?:me|us)\b", "make": r"\s+(?:sure|sense)\b"}
    told |= {"remind": rf"\s+(?:me|us)\s+(?:of|{_WH})\b", "note": r"\s+that\b", "add": r"\s+up\b"}
    noun = r"\s+(?:of|by|from|about|is|are|was|were|has|had)\b|['’]s\b" if _NOUNS.fullmatch(verb) else ""
    barred = "|".join([one for one in (told.get(verb, ""), noun, "[-'’]\\w") if one])
    base = rf"{word}\b(?!{barred})"
    whom = r"(?:\s+(?:me|us|him|her|them|(?-i:[A-Z])\w+))?"
    light = rf"(?:make|do|place|send|write|give|leave|put|create|add|drop|get|set up|take){whom}"
    stem = re.escape(verb.removesuffix("e"))
    sources = (
        base,
        rf"{base}(?!\s*(?:,|and\b|or\b))",
        rf"{base}\s+(?:{_OBJECT})",
        rf"{light}\s+(?:an?|another|one)\s+(?:[\w-]+\s+){{0,2}}?{word}\b(?!\s+of\b)"
        rf"|(?:ask|tell|let|answer|inform|notify|invite|thank|remind|contact|reach)\b[^,;:]{{0,60}}?\bby {word}\b",
        rf"\s+(?:{stem}|{word}{re.escape(verb[-1])})ing\b",
    )
    return tuple([re.compile(source, re.IGNORECASE) for source in sources])


@lru_cache(512)
def _japanese(verb: str) -> re.Pattern[str]:
    """Return a pattern for a stem with a requesting ending. The group `te` is there if what follows decides."""
    word = re.escape(verb)
    bends = _KANA_END.search(verb) is not None  # 送って; else it needs する: 予約して
    before = rf"(?:(?<![一-鿿々])|(?<=[{_WHEN_OR_HOW_MANY}]))" if len(verb) == 1 else ""
    if verb.endswith(("て", "で")):
        return re.compile(rf"{word}(?P<te>)")
    te = rf"(?:{_LIGHT})(?:て|とい?て|ちゃって)|の(?:手続き?|手配|処理)を?して"
    te += r"|で[^、。]{0,12}?(?:教え|伝え|知らせ|送っ|聞い|連絡し)て"
    te += r"|(?:っ|い|し|え|て|め|れ|け|せ|じ|き)?(?:て|といて|ちゃって)|ん(?:で|どいて|じゃって)" if bends else ""
    noun = rf"{word}{'[いりみしきち]?' if bends else ''}"
    forms = [
        rf"{before}{noun}{_HOW}(?:を|も|は|だけ)?{_ASKING}",
        rf"[おご]{noun}(?:を)?(?:ください|下さい|願|いただけ(?!ま?した)|頂け(?!ま?した))",
        rf"{before}{word}(?:{'[いきしちにみりび]?|' if bends else ''}(?:を)?し){_WISHED}",
        rf"{before}{word}(?:(?:を)?し(?:ろ|なさい|よう|ましょう)|せよ|(?:を)?すること(?=[。!]|$))",
        rf"[をにへで][^、。をは]{{0,15}}?(?<!の){word}(?=\s*(?:[。!]|$))",
    ]
    if bends:
        forms += [
            rf"{before}{word}(?:[いきしちにみりび]?なさい|[えけせてねめれべ]よ?(?=[。!]|$)|[うくすつぬむるぐぶ]?(?:こと|ように)(?=[。!]|$))"
        ]
    return re.compile(rf"{before}{word}(?P<te>{te})|{'|'.join(forms)}")
