"""The kinds of personal data that kaname finds by itself: a pattern for each form, and a check where the number has one.

Patterns look at folded text (full-width digits are ASCII). They end at a look-around for digits or letters, and not at `\\b`,
which fails between a digit and kana. A group named `value` is the part that is replaced; the rest is the word that says so.
Every pattern has a bounded length, so that a stream is never held back for long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, NamedTuple

import regex

Checked = Callable[[str], bool]


class DataForm(NamedTuple):
    """One form in which a kind of data is written.

    `check` decides on a match, and `near` has to match the text just before it. `firsts` are the characters with which a match
    can begin, and `words` those of which one is in a text that has a match: a text without them is not searched.
    """

    kind: str
    pattern: Any
    check: Checked | None = None
    firsts: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    near: Any = None


_DASH = r"[-‐‑‒–—―−ー]"
_SEP = rf"(?: |{_DASH})"
_START, _END = rf"(?<![0-9A-Za-z_])(?<![0-9]{_DASH}|[0-9]\.)", rf"(?![0-9A-Za-z_]|{_DASH}[0-9A-Za-z]|\.[0-9])"
_GAP = r"[^0-9A-Za-z\n]"
_EXT = r"(?:[ ;,]{0,2}\(? ?(?i:x|ext(?:ension|n)?\.?|内線(?:番号)?)[ .:=]{0,2}[0-9]{1,7}(?: ?\))?)"
_EXTENSION = regex.compile(_EXT)
_DAY = (
    r"(?:(?:19|20)[0-9]{2}(?:年|[-/. ]|, ?) ?[0-9]{1,2}(?:月|[-/. ]) ?[0-9]{1,2}日?"
    r"|(?:明治|大正|昭和|平成|令和|[MTSHR]\.?) ?(?:[0-9]{1,2}|元)[年./-] ?[0-9]{1,2}[月./-] ?[0-9]{1,2}日?"
    r"|[0-9]{1,2}[-/. ][0-9]{1,2}[-/. ](?:19|20)?[0-9]{2}|(?:19|20)[0-9]{6})(?![0-9])"
)
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]{0,6}\.?"
_ENGLISH_DAY = (
    rf"(?:{_MONTH} [0-9]{{1,2}}(?:st|nd|rd|th)?,?|[0-9]{{1,2}}(?:st|nd|rd|th)?[ -](?:of )?{_MONTH},?)"
    r"[ -](?:19|20)[0-9]{2}(?![0-9])"
)
_KEYS = {  # by the characters with which they begin
    "A": r"(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,45}|AC[0-9a-f]{32}",
    "s": r"sk-(?=[A-Za-z0-9_-]{0,60}[0-9])[A-Za-z0-9_-]{20,250}|sk_(?:live|test)_[A-Za-z0-9]{16,250}",
    "g": r"gh[pousr]_[A-Za-z0-9]{30,250}|github_pat_[A-Za-z0-9_]{20,250}|glpat-[A-Za-z0-9_-]{20,100}|gsk_[A-Za-z0-9]{40,60}",
    "x": r"xox[abeoprs]-[A-Za-z0-9-]{10,250}|xapp-[A-Za-z0-9-]{10,250}|xai-[A-Za-z0-9]{40,100}",
    "y": r"ya29\.[A-Za-z0-9_-]{20,250}",
    "h": r"https://hooks\.slack\.com/services/[A-Za-z0-9/]{20,100}|hf_[A-Za-z0-9]{30,60}",
    "GS": r"GOCSPX-[A-Za-z0-9_-]{20,60}|SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,60}|SK[0-9a-f]{32}",
    "rpw": r"[rp]k_(?:live|test)_[A-Za-z0-9]{16,250}|whsec_[A-Za-z0-9+/=]{20,100}|pypi-[A-Za-z0-9_-]{40,250}",
    "nd": r"npm_[A-Za-z0-9]{36}|dop_v1_[0-9a-f]{64}",
    "e": r"eyJ[A-Za-z0-9_-]{10,1000}\.eyJ[A-Za-z0-9_-]{5,2000}\.[A-Za-z0-9_-]{10,1000}",
}
_PRIVATE = r"-----BEGIN (?:[A-Z]{2,9} )?PRIVATE KEY-----[A-Za-z0-9+/=\s\\]{20,8000}-----END (?:[A-Z]{2,9} )?PRIVATE KEY-----"


_CARDS = (  # the first two digits of card numbers, and their numbers of digits
    (frozenset(range(40, 50)), (16, 19)),
    (frozenset({*range(40, 50)} - {45, 49}), (13,)),  # with 45 and 49, 13 digits are barcodes
    (frozenset({*range(51, 56), *range(22, 28)}), (16,)),
    (frozenset({34, 37}), (15,)),
    (frozenset({30, 36, 38, 39}), range(14, 20)),
    (frozenset({35, 60, 62, 64, 65}), range(16, 20)),
    (frozenset({50, 56, 57, 58, 63, 67}), range(13, 20)),
)


def is_card(text: str) -> bool:
    """Return True if an issuer has card numbers with this beginning and length, and the last digit is right (Luhn)."""
    digits = _digits(text)
    two = 10 * digits[0] + digits[1]
    issued = any(two in beginnings and len(digits) in lengths for beginnings, lengths in _CARDS)
    total = sum([d if n % 2 == 0 else sum(divmod(2 * d, 10)) for n, d in enumerate(reversed(digits))])
    return issued and total % 10 == 0


def is_my_number(text: str) -> bool:
    """Return True if the last of the twelve digits is the check digit of an Individual Number."""
    digits = _digits(text)
    if len(digits) != 12 or len(set(digits)) == 1:
        return False
    total = sum([d * (n + 1 if n <= 6 else n - 5) for n, d in enumerate(reversed(digits[:11]), 1)])
    rest = total % 11
    return digits[11] == (0 if rest <= 1 else 11 - rest)


def is_iban(text: str) -> bool:
    """Return True if the check digits of an IBAN are right (mod 97)."""
    plain = "".join([char for char in text.upper() if char.isalnum()])
    moved = plain[4:] + plain[:4]
    return 15 <= len(plain) <= 34 and int("".join([str(int(char, 36)) for char in moved])) % 97 == 1


def is_phone(text: str) -> bool:
    """Return True if a number with a leading 0 has as many digits as a telephone number: in Japan 10, mobile 11."""
    text = _EXTENSION.sub("", text)
    digits = _digits(text)
    mobile = digits[1] in (5, 7, 8, 9) and digits[2] == 0
    return digits[1] != 0 and (len(digits) == (11 if mobile else 10) or (len(digits) == 11 and " " in text))


def is_international(text: str) -> bool:
    return 8 <= len(_digits(_EXTENSION.sub("", text))) <= 15


def is_dialled(text: str) -> bool:
    """Return True if a number that begins with the digits that are dialled to leave a country is a telephone number."""
    number = _EXTENSION.sub("", text)
    return 11 <= len(_digits(number)) <= 18 and len(number) >= len(_digits(number)) + 2  # digits alone may be any number


def is_ip(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if address.version == 4:
        return not address.is_unspecified and not text.startswith("255.")  # a mask of a network is nobody's address
    return not address.is_unspecified and any(char.isdigit() for char in text)


def _digits(text: str) -> list[int]:
    return [int(char) for char in text if char in "0123456789"]


def _form(kind: str, pattern: str, check: Checked | None = None, firsts: str = "", words: str = "") -> DataForm:
    return DataForm(kind, regex.compile(pattern), check, frozenset(firsts), tuple(words.split("|")) if words else ())


def _numbers(kind: str, pattern: str, check: Checked | None = None) -> DataForm:
    return _form(kind, pattern, check, "0123456789")


def _near(kind: str, value: str, near: str, words: str, firsts: str = "0123456789") -> DataForm:
    """Return the form of a value with a word before it: `near` says which, and how far away."""
    return _form(kind, value, None, firsts, words)._replace(near=regex.compile(rf"(?i:{near})\Z"))


def _forms_near(
    kind: str, words: str, value: str, firsts: str = "0123456789", before: int = 100, after: int = 10
) -> list[DataForm]:
    """Return the forms of a value with one of the words up to so many characters before it, or after it."""
    return [
        _near(kind, value, rf"(?:{words})[\s\S]{{0,{before}}}", words, firsts),
        _form(kind, rf"(?P<value>{value}){_GAP}{{0,{after}}}(?i:{words})", None, firsts, words),
    ]


@lru_cache(maxsize=1)
def built_in() -> tuple[DataForm, ...]:
    """Return the forms of all kinds, the more certain ones first. They are compiled when the first text is looked at."""
    return (*_secrets(), *_money(), *_documents(), *_contacts())


def _secrets() -> list[DataForm]:
    keys = [_form("api_key", rf"(?<![A-Za-z0-9_])(?:{one})(?![A-Za-z0-9])", None, firsts) for firsts, one in _KEYS.items()]
    aws = r"(?i:secret[ _]?access[ _]?key)[^A-Za-z0-9\n]{0,8}(?P<value>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
    telegram = r"(?<![0-9A-Za-z])[0-9]{8,10}:[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"
    return [_form("api_key", _PRIVATE, None, "-"), *keys, _form("api_key", aws, words="secret"), _numbers("api_key", telegram)]


def _money() -> list[DataForm]:
    iban, digits = rf"{_START}(?i:[A-Z]{{2}}[0-9]{{2}}", "0|1|2|3|4|5|6|7|8|9"
    seven = rf"{_START}[0-9]{{6,8}}{_END}(?! ?(?:円|万|yen|JPY|件|人|名(?!義)|個|ドル))"
    english = rf"(?i:account|acct|a/c){_GAP}{{0,6}}(?:(?i:number|no|is){_GAP}{{1,6}}){{0,3}}"
    return [
        _form("iban", rf"{iban}[A-Z0-9]{{11,30}})(?![A-Za-z0-9])", is_iban, words=digits),
        _form("iban", rf"{iban}(?: [A-Z0-9]{{4}}){{2,7}})(?![A-Za-z0-9])", is_iban, words=digits),
        _form("iban", rf"{iban}(?: [A-Z0-9]{{4}}){{2,7}} [A-Z0-9]{{1,3}})(?![A-Za-z0-9])", is_iban, words=digits),
        _numbers("card", rf"{_START}[2-6][0-9]{{12,18}}{_END}", is_card),
        _numbers("card", rf"{_START}[2-6][0-9]{{3}}(?:{_SEP}[0-9]{{4}}){{3}}(?:{_SEP}[0-9]{{1,3}})?{_END}", is_card),
        _numbers("card", rf"{_START}3[0-9]{{3}}{_SEP}[0-9]{{6}}{_SEP}[0-9]{{4,5}}{_END}", is_card),
        *_forms_near("bank_account", "口座|account|acct", seven, before=60),
        *_forms_near("bank_account", "普通|当座|貯蓄", seven, before=8, after=3),
        _form("bank_account", rf"{english}(?P<value>{_START}[0-9]{{8,17}}{_END})", words="account|acct|a/c"),
        _form("bank_account", r"記号[^0-9\n]{0,4}(?P<value>1[0-9]{4}[^0-9\n]{0,8}[0-9]{6,8})(?![0-9])", words="記号"),
    ]


def _documents() -> list[DataForm]:
    twelve = rf"{_START}(?<![0-9]{{4}} )[0-9]{{4}}{_SEP}?[0-9]{{4}}{_SEP}?[0-9]{{4}}{_END}(?! [0-9]{{4}})"
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    day = rf"(?<![0-9])(?i:{_DAY}|{_ENGLISH_DAY})"
    field = r"生年月日|出生|date of birth|birth ?date|(?<![a-z])(?:dob|d\.o\.b)(?![a-z])"  # a form or a table
    said = r"誕生日|生まれ(?!変)|birthday|(?<![a-z])born(?![a-z])"
    begins = "0123456789明大昭平令MTSHRmtshr"
    words = "生年月日|出生|誕生日|生まれ|birth|dob|d.o.b|born"
    return [
        *_forms_near("driving_licence", "免許|licence|license", twelve),
        *_forms_near("passport", "旅券|パスポート|passport", r"(?<![A-Za-z0-9])[A-Za-z]{2} ?[0-9]{7}(?![0-9A-Za-z])", letters),
        _numbers("my_number", rf"(?<!(?i:追跡|注文|伝票|order|tracking|invoice)[^0-9\n]{{0,12}}){twelve}", is_my_number),
        _near("date_of_birth", day, rf"(?:{field})[\s\S]{{0,180}}", words, ""),
        _near("date_of_birth", day, rf"(?:{said})[^0-9。\n]{{0,24}}|(?<![a-z])b\. ?", f"{words}|b.", ""),
        _form("date_of_birth", rf"(?P<value>{day})[^0-9。.\n]{{1,16}}(?i:{field}|{said})", words=words),
        _form(
            "date_of_birth",
            rf"(?P<value>(?<![0-9])(?i:{_DAY}|[0-9]{{1,2}}月 ?[0-9]{{1,2}}日)){_GAP}{{0,2}}"
            r"(?:生まれ(?!変)|うまれ|生(?![0-9一-龥]))",
            None,
            begins,
            "生|うまれ",
        ),
    ]


def _contacts() -> list[DataForm]:
    tel = rf"(?:(?<=(?i:tel|fax|phone)\.?)|(?<![0-9A-Za-z_]))(?<![0-9]{_DASH}|[0-9]\.)"
    label = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
    email = rf"(?<![A-Za-z0-9])[A-Za-z0-9_%+][A-Za-z0-9._%+'-]{{0,63}}(?:@|%40)(?:{label}\.){{1,8}}"
    inner = rf"(?:{_SEP}|\.| ?\(|\) ?)?[0-9]"
    octet, area = r"(?:25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])", r"(?:北海道|[一-龥]{1,5}[都府県市区郡]|(?i:japan|tokyo))"
    version = r"(?<!(?i:version|ver\.?|バージョンは?|release|build|section|ファームウェア|firmware|版) ?)"
    end = rf"{_EXT}?{_END}"
    number = rf"[0-9]{{1,3}}(?:[ .]?\(0?[0-9]{{1,4}}\))?(?:{inner}){{7,14}}{end}"  # after `+`, or what is dialled instead
    seven = rf"[0-9]{{3}}{_DASH}[0-9]{{4}}"
    return [
        _form("email", rf"{email}(?:[A-Za-z]{{2,24}}|xn--[a-z0-9]{{2,30}})(?![A-Za-z0-9-])", words="@|%40"),
        _form("phone", rf"{tel}\+{number}", is_international, "+"),
        _numbers("phone", rf"{tel}(?:0011|011|010|00)(?:{_SEP})?(?=[1-9]){number}", is_dialled),
        _numbers("phone", rf"{tel}0[0-9]{{1,4}}{_SEP}[0-9]{{1,4}}{_SEP}[0-9]{{3,4}}{end}", is_phone),
        _form(
            "phone",
            rf"{tel}\(?0[0-9]{{1,4}} ?[()] ?[0-9]{{1,4}}(?:{_SEP}|\) ?)[0-9]{{3,4}}{end}",
            is_phone,
            "(0",
        ),
        _numbers("phone", rf"{tel}0(?:[5789]0[0-9]{{8}}|[1-9][0-9]{{3}} [0-9]{{6}}){end}"),
        *_forms_near("phone", "電話|携帯|連絡先|tel|fax|phone|call|dial|mobile", rf"{tel}0[1-9][0-9]{{8}}{end}"),
        _form(
            "phone",
            rf"{tel}(?:\([2-9][0-9]{{2}}\) ?|[2-9][0-9]{{2}}[-. ])[2-9][0-9]{{2}}[-. ][0-9]{{4}}{end}",
            None,
            "(23456789",
        ),
        *_forms_near(
            "postal_code", "〒|郵便番号|postal|postcode|post code|zip|jp-", rf"{_START}{seven}{_END}", before=100, after=3
        ),
        _near(
            "postal_code", rf"{_START}[0-9]{{7}}{_END}", "(?:〒|郵便番号|zip|postal)[^0-9\\n]{0,8}", "〒|郵便番号|zip|postal"
        ),
        _numbers("postal_code", rf"(?P<value>{_START}[0-9]{{3}}{_DASH}[0-9]{{4}}{_END})[ 、,\n]{{0,3}}{area}"),
        _near(
            "postal_code",
            rf"{_START}{seven}{_END}",
            r"(?:tokyo|osaka|kyoto|hokkaido|japan|prefecture)[ ,]{1,3}",
            "tokyo|osaka|kyoto|hokkaido|japan|prefecture",
        ),
        _numbers("ip", rf"(?<![0-9A-Za-z_.]){version}{octet}(?:\.{octet}){{3}}(?![0-9A-Za-z_]|\.[0-9]| ?[節章項])", is_ip),
        _form(
            "ip",
            r"(?<![0-9A-Za-z_:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3})?(?![0-9A-Za-z_:])",
            is_ip,
            "0123456789abcdefABCDEF:",
            ":",
        ),
    ]


KINDS = (
    "api_key", "email", "iban", "card", "driving_licence", "passport", "my_number", "bank_account", "date_of_birth", "phone",
    "postal_code", "ip",
)  # fmt: skip
