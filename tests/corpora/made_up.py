"""Make up values of personal data that pass the checks of their kind, and look-alikes that do not.

Phone numbers abroad come from ranges kept for fiction, mail domains and IP addresses from reserved ones.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
HYPHENS = ["-"] * 6 + ["‐", "－", "ー", "−", "–", " "]
UPPER, LOWER, DIGITS, HEX = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz", "0123456789", "0123456789abcdef"
ALNUM = UPPER + LOWER + DIGITS
WIDE = {ord(c): ord(c) + 0xFEE0 for c in ALNUM + "@.()+/"}
R = random.Random(36)

PARTS = {
    name: values.split("|")
    for name, values in (
        line.split(": ") for line in (HERE / "personal_data_parts.txt").read_text(encoding="utf-8").splitlines()
    )
}


def part(name: str) -> str:
    return R.choice(PARTS[name])


def some(letters: str, n: int) -> str:
    return "".join(R.choice(letters) for _ in range(n))


def widen(text: str, hyphen: str = "－") -> str:
    return text.translate(WIDE).replace("-", hyphen).replace(" ", "\u3000")


def luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        n = int(digit) * (1 + place % 2)
        total += n - 9 if n > 9 else n
    return total % 10 == 0


def my_number_check(eleven: str) -> str:
    """Return the check digit of a My Number (modulus 11; Ordinance 85 of 2014, article 5)."""
    rest = sum(int(d) * (n + 1 if n <= 6 else n - 5) for n, d in enumerate(reversed(eleven), 1)) % 11
    return str(0 if rest <= 1 else 11 - rest)


def iban_check(country: str, account: str) -> str:
    number = "".join(str(int(c, 36)) for c in account + country + "00")
    return f"{98 - int(number) % 97:02d}"


def groups(digits: str, sizes: tuple[int, ...], between: str) -> str:
    parts, at = [], 0
    for size in sizes:
        parts.append(digits[at : at + size])
        at += size
    return between.join(parts)


def number(digits: str, sizes: tuple[int, ...], form: str, ja: bool) -> str:
    """Write digits plainly, in groups, or full-width; the form decides, or chance."""
    form = form or R.choice(["plain", "plain", "space", "hyphen", "hyphen", "wide" if ja else "space"])
    if form == "plain":
        return digits
    if form == "space":
        return groups(digits, sizes, " ")
    if form == "wide":
        return widen(groups(digits, sizes, R.choice(["", "-"])), R.choice("－ー−"))
    return groups(digits, sizes, R.choice(HYPHENS[:-1]) if ja else "-")


def email(form: str, ja: bool) -> str:
    first, last = part("first names").lower(), re.sub(r"[^a-z]", "", part("last names").lower())
    if ja:
        first, last = part("mail first"), part("mail last")
    local = R.choice(
        [
            f"{first}.{last}",
            f"{first[0]}{last}",
            f"{first}_{last}{R.randrange(10, 99)}",
            f"{last}-{first}",
            f"{first}+{R.choice(['news', 'shop', 'test'])}",
        ]
    )
    text = f"{local}@{part('domains')}"
    if form == "upper":
        return text.upper()
    if form == "url":
        return text.replace("+", "%2B").replace("@", "%40")
    return widen(text) if form == "wide" else text


def phone(form: str, ja: bool) -> str:
    if form in ("us", "uk", "de", "fr", "au") or (not ja and not form):
        return abroad(form)
    mobile = form in ("mobile", "plain") or R.random() < 0.55
    parts = [R.choice(["090", "080", "070", "050"]), some("123456789", 1) + some(DIGITS, 3), some(DIGITS, 4)]
    if not mobile:
        area, size = R.choice([("03", 4), ("06", 4), ("045", 3), ("011", 3), ("092", 3), ("0467", 2), ("0258", 2)])
        parts = [area, some("23456789", 1) + some(DIGITS, size - 1), some(DIGITS, 4)]
    if form == "intl" or (not form and R.random() < 0.12):
        between = R.choice(["-", " "])
        return f"+81{between}{parts[0][1:]}{between}{parts[1]}{between}{parts[2]}"
    if form == "plain":
        return "".join(parts)
    if form == "round":
        return R.choice(
            [f"({parts[0]}) {parts[1]}-{parts[2]}", f"{parts[0]}({parts[1]}){parts[2]}", f"（{parts[0]}）{parts[1]}-{parts[2]}"]
        )
    if form == "wide" or (ja and not form and R.random() < 0.18):
        return R.choice("－ー−‐").join(parts).translate(WIDE)
    return R.choice(HYPHENS if ja else ["-"]).join(parts)


def abroad(form: str) -> str:
    """Return a phone number from the ranges that the regulators keep for fiction."""
    d = some(DIGITS, 2)
    area = R.choice(["212", "415", "503", "617", "312"])
    forms = {
        "us": [
            f"({area}) 555-01{d}",
            f"{area}-555-01{d}",
            f"+1 {area} 555 01{d}",
            f"{area}.555.01{d}",
            f"+1-{area}-555-01{d}",
            f"+1{area}55501{d}",
        ],
        "uk": [
            f"020 7946 0{some(DIGITS, 3)}",
            f"07700 900{some(DIGITS, 3)}",
            f"+44 7700 900{some(DIGITS, 3)}",
            f"+44 (0)20 7946 0{some(DIGITS, 3)}",
        ],
        "de": [f"+49 30 23125 {some(DIGITS, 3)}"],
        "fr": [f"+33 1 99 00 {d} {some(DIGITS, 2)}"],
        "au": [f"0491 570 {some(DIGITS, 3)}", f"+61 491 570 {some(DIGITS, 3)}"],
    }
    return R.choice(forms[form or R.choice(["us", "us", "us", "uk", "uk", "de", "fr", "au"])])


def card(form: str, ja: bool) -> str:
    start, size = R.choice(
        [
            ("4", 16),
            ("4", 16),
            (f"5{R.randrange(1, 6)}", 16),
            ("2221", 16),
            ("37", 15),
            ("34", 15),
            ("3530", 16),
            ("36", 14),
            ("6011", 16),
        ]
    )
    body = start + some(DIGITS, size - len(start) - 1)
    digits = next(body + d for d in DIGITS if luhn(body + d))
    return number(digits, {16: (4, 4, 4, 4), 15: (4, 6, 5), 14: (4, 6, 4)}[size], form, ja)


def iban(form: str, ja: bool) -> str:
    country, shape = R.choice(
        [
            *(
                ("DE", "#" * 18),
                ("GB", "@@@@" + "#" * 14),
                ("FR", "#" * 23),
                ("NL", "@@@@" + "#" * 10),
                ("ES", "#" * 20),
                ("IT", "@" + "#" * 22),
            ),
            *(("CH", "#" * 17), ("BE", "#" * 12), ("AT", "#" * 16), ("PL", "#" * 24), ("SE", "#" * 20), ("NO", "#" * 11)),
        ]
    )
    account = mask(shape)
    text = country + iban_check(country, account) + account
    return (
        text
        if form == "plain" or (not form and R.random() < 0.4)
        else " ".join(text[i : i + 4] for i in range(0, len(text), 4))
    )


def my_number(form: str, ja: bool) -> str:
    eleven = some("123456789", 1) + some(DIGITS, 10)
    return number(eleven + my_number_check(eleven), (4, 4, 4), form, ja)


def passport_jp(form: str, ja: bool) -> str:
    text = R.choice("TKMN") + some("GHKLRSTUZ", 1) + some(DIGITS, 7)
    if form == "space":
        return f"{text[:2]} {text[2:]}"
    return {"wide": widen(text), "lower": text.lower()}.get(form, text)


def licence_jp(form: str, ja: bool) -> str:
    digits = R.choice(["30", "62", "10", "45", "90", "52", "72"]) + some(DIGITS, 9) + R.choice("0001")
    return number(
        digits, (4, 4, 4), form or R.choice(["plain", "plain", "plain", "space", "hyphen", "wide" if ja else "plain"]), ja
    )


def bank_account_jp(form: str, ja: bool) -> str:
    text = some(DIGITS, 7)
    return widen(text) if form == "wide" or (ja and not form and R.random() < 0.15) else text


def postal_code_jp(form: str, ja: bool) -> str:
    parts = [some(DIGITS, 3), some(DIGITS, 4)]
    if form == "plain":
        return "".join(parts)
    if form == "wide" or (ja and not form and R.random() < 0.2):
        return R.choice("－ー−‐").join(parts).translate(WIDE)
    return ("-" if not ja or R.random() < 0.7 else R.choice("‐－ー−")).join(parts)


def ip(form: str, ja: bool) -> str:
    if form == "v6":
        tail = ":".join(some(HEX, 4).lstrip("0") or "0" for _ in range(R.choice([2, 6])))
        return "2001:db8:" + (":" if tail.count(":") == 1 else "") + tail
    start = R.choice(
        ["192.0.2", "198.51.100", "203.0.113", f"10.{R.randrange(256)}.{R.randrange(256)}", f"192.168.{R.randrange(1, 250)}"]
    )
    if R.random() < 0.35:
        network = R.choice(["198.18", "198.19", f"100.{R.randrange(64, 128)}", f"{R.randrange(240, 250)}.{R.randrange(256)}"])
        start = f"{network}.{R.randrange(256)}"
    return f"{start}.{R.randrange(2, 254)}"


def a_day(first: int, last: int) -> tuple[int, int, int]:
    return R.randrange(first, last), R.randrange(1, 13), R.randrange(1, 29)


def birth_date(form: str, ja: bool) -> str:
    y, m, d = a_day(1948, 2012)
    return (date_ja if ja else date_en)(y, m, d, form)


def date_en(y: int, m: int, d: int, form: str) -> str:
    month = PARTS["months"][m - 1]
    named = {
        "iso": f"{y}-{m:02d}-{d:02d}",
        "plain": f"{y}{m:02d}{d:02d}",
        "words": f"{month} {d}, {y}",
        "slash": f"{m:02d}/{d:02d}/{y}",
    }
    return named.get(form) or R.choice(
        [*list(named.values())[2:], named["iso"], f"{d} {month} {y}", f"{d:02d}.{m:02d}.{y}", f"{d} {month[:3]} {y}"]
    )


def date_ja(y: int, m: int, d: int, form: str) -> str:
    era, sign, year = ("昭和", "S", y - 1925) if y < 1989 else ("平成", "H", y - 1988) if y < 2019 else ("令和", "R", y - 2018)
    named = {
        "iso": f"{y}-{m:02d}-{d:02d}",
        "plain": f"{y}{m:02d}{d:02d}",
        "slash": f"{y}/{m:02d}/{d:02d}",
        "era": f"{era}{year if year > 1 else '元'}年{m}月{d}日",
        "sign": f"{sign}{year}.{m}.{d}",
        "words": f"{y}年{m}月{d}日",
        "wide": widen(f"{y}年{m}月{d}日"),
    }
    return named.get(form) or R.choice(
        [named["words"]] * 3 + [named["era"]] * 3 + [named["slash"], named["iso"], named["wide"]]
    )


def key(form: str, ja: bool) -> str:
    shapes: dict[str, Callable[[], str]] = {
        "openai": lambda: "sk-proj-" + some(ALNUM, 74) + "T3Blbk" + "FJ" + some(ALNUM, 74),
        "openai_old": lambda: "sk-" + some(ALNUM, 20) + "T3Blbk" + "FJ" + some(ALNUM, 20),
        "anthropic": lambda: "sk-ant-" + "api03-" + some(ALNUM + "-_", 93) + "AA",
        "aws": lambda: "AKIA" + some(UPPER + "234567", 16),
        "aws_secret": lambda: some(ALNUM, 22) + "/" + some(ALNUM, 17),
        "github": lambda: R.choice(["ghp_", "gho_", "ghs_"]) + some(ALNUM, 36),
        "github_fine": lambda: "github_pat_" + some(ALNUM, 22) + "_" + some(ALNUM, 59),
        "gitlab": lambda: "glpat-" + some(ALNUM + "-_", 19) + some(ALNUM, 1),
        "slack": lambda: f"xoxb-{some('123456789', 12)}-{some('123456789', 13)}-{some(ALNUM, 24)}",
        "stripe": lambda: R.choice(["sk_live_", "rk_live_", "sk_test_"]) + some(ALNUM, 24),
        "google": lambda: "AIza" + "Sy" + some(ALNUM + "-_", 32) + some(ALNUM, 1),
        "sendgrid": lambda: f"SG.{some(ALNUM, 22)}.{some(ALNUM, 43)}",
        "huggingface": lambda: "hf_" + some(LOWER + UPPER, 34),
        "npm": lambda: "npm_" + some(ALNUM, 36),
        "pypi": lambda: "pypi-AgEIcHlwaS5vcmc" + some(ALNUM + "-_", 139) + some(ALNUM, 1),
        "groq": lambda: "gsk_" + some(ALNUM, 52),
    }
    return shapes[form or R.choice(list(shapes)[:1] + [name for name in shapes if name != "aws_secret"])]()


def person(form: str, ja: bool) -> str:
    if not ja:
        first, last = part("first names"), part("last names")
        middle = f"{first} {R.choice(UPPER)}. {last}"
        return {"first": first, "last": last, "turned": f"{last}, {first}", "upper": f"{first} {last}".upper()}.get(
            form
        ) or R.choice([f"{first} {last}"] * 6 + [middle])
    if form == "kana":
        return part("カナ")
    if form == "last":
        return part("姓")
    if form == "roman":
        return f"{part('roman first')} {part('roman last')}"
    return part("姓") + R.choice(["", " ", " ", "\u3000"] if not form else [""]) + part("名")


def address(form: str, ja: bool) -> str:
    if not ja and form == "jp":
        return f"{R.randrange(1, 9)}-{R.randrange(1, 30)}-{R.randrange(1, 20)} {part('towns of Japan')}"
    if not ja:
        line = f"{R.randrange(3, 2400)} {part('streets')}"
        flat = R.choice(["", "", f", Apt {R.randrange(1, 40)}{R.choice('ABCD')}", f", Flat {R.randrange(1, 30)}"])
        if form == "street":
            return line + flat
        town = part("towns of the US") if form == "us" or (not form and R.random() < 0.6) else part("towns of the UK")
        return f"{line}{flat}, {town}"
    a, b, c = R.randrange(1, 9), R.randrange(1, 30), R.randrange(1, 20)
    hyphen = R.choice(HYPHENS[:-1])
    block = R.choice(
        [f"{a}{hyphen}{b}{hyphen}{c}", f"{a}丁目{b}番{c}号", f"{a}丁目{b}-{c}", widen(f"{a}-{b}-{c}"), f"{b}番地{c}"]
    )
    house = R.choice(["", "", f" {part('建物')}{R.randrange(101, 909)}号室", f"　{part('建物')}{R.randrange(101, 909)}"])
    return part("町") + block + ("" if form == "short" else house)


MAKERS: dict[str, Callable[[str, bool], str]] = {
    maker.__name__: maker
    for maker in (
        *(email, phone, card, iban, my_number, passport_jp, licence_jp, bank_account_jp, postal_code_jp, ip, birth_date, key),
        *(person, address),
    )
}


def mask(shape: str) -> str:
    """Fill in a mask, so that a long number does not pass the check of a card or of a My Number by chance."""
    sets = {"#": DIGITS, "^": DIGITS[1:], "@": UPPER, "~": HEX}
    while True:
        text = "".join(some(sets[c], 1) if c in sets else c for c in shape)
        digits = re.sub(r"\D", "", text)
        wrong_card = len(digits) < 13 or not luhn(digits)
        if wrong_card and (len(digits) != 12 or my_number_check(digits[:11]) != digits[11]):
            return text


def isbn() -> str:
    twelve = "978" + R.choice("04") + some(DIGITS, 8)
    check = -sum(int(d) * (1 + 2 * (i % 2)) for i, d in enumerate(twelve)) % 10
    return f"{twelve[:3]}-{twelve[3]}-{twelve[4:8]}-{twelve[8:]}-{check}"


def wrong_iban() -> str:
    account = some(DIGITS, 18)
    return f"DE{(int(iban_check('DE', account)) + 11) % 97:02d}{account}"


def imei() -> str:
    body = "35" + some(DIGITS, 12)
    return next(body + d for d in DIGITS if luhn(body + d))


def filler(name: str, ja: bool) -> str:
    known: dict[str, Callable[[], str]] = {
        "sha": lambda: some(HEX, 40),
        "md5": lambda: some(HEX, 32),
        "isbn": isbn,
        "iban": wrong_iban,
        "imei": imei,
        "uuid": lambda: groups(some(HEX, 32), (8, 4, 4, 4, 12), "-"),
        "card": lambda: number(re.sub(r"\D", "", mask("4###############")), (4, 4, 4, 4), "", ja),
        "twelve": lambda: number(mask("^###########"), (4, 4, 4), "", ja),
        "passing": lambda: (lambda eleven: eleven + my_number_check(eleven))(some("123456789", 11)),
        "date": lambda: (date_ja if ja else date_en)(*a_day(2019, 2027), ""),
        "wide7": lambda: widen(some(DIGITS, 7)),
    }
    return known[name]() if name in known else mask(name)
