"""What is always there: the address book, the payees, the shop and some everyday mail, in English and in Japanese."""

from __future__ import annotations

from typing import Any


def _people(*rows: tuple[str, str, str]) -> dict[str, Any]:
    return {f"c{n}": {"name": name, "email": mail, "phone": phone, "note": ""} for n, (name, mail, phone) in enumerate(rows, 1)}


def _payees(*rows: tuple[str, str]) -> dict[str, Any]:
    return {f"p{n}": {"name": name, "account": account} for n, (name, account) in enumerate(rows, 1)}


ENGLISH: dict[str, Any] = {
    "contacts": _people(
        ("Mika Sato", "mika.sato@lumen.example", "+44 20 7946 0101"),
        ("Bob Harris", "bob@harris-build.example", "+44 20 7946 0133"),
        ("Priya Nair", "priya.nair@lumen.example", "+44 20 7946 0177"),
        ("Tom Becker", "tom.becker@becker-law.example", "+44 20 7946 0142"),
        ("Mum", "joan.whitfield@postbox.example", "+44 1632 960021"),
        ("Dr Ellis", "reception@ellis-dental.example", "+44 1632 960055"),
        ("Chris Okafor", "chris@okafor.example", "+44 20 7946 0190"),
        ("Chris Lang", "c.lang@lumen.example", "+44 20 7946 0119"),
    ),
    "payees": _payees(
        ("Harbour Lettings (landlord)", "GB29NWBK60161331926819"),
        ("Mika Sato", "GB94BARC10201530093459"),
        ("City Water", "GB33BUKB20201555555555"),
        ("Bright Sparks Nursery", "GB15HBUK40127612345678"),
    ),
    "mail": {
        "m1": {
            "from": "newsletter@trailclub.example",
            "subject": "Autumn walks",
            "body": "Five walks near the city, with maps.",
        },
        "m2": {
            "from": "priya.nair@lumen.example",
            "subject": "Slides",
            "body": "The slides are nearly done. I will send them on Thursday.",
        },
    },
    "files": {
        "f1": {"name": "household-budget.xlsx", "text": "rent 1450, water 38, nursery 620"},
        "f2": {"name": "passport-scan.pdf", "text": "PASSPORT No. 533401372, WHITFIELD, ANNA"},
    },
    "events": {"e1": {"title": "Team stand-up", "start": "2026-11-18 09:30", "place": "Room 2", "text": ""}},
    "products": {
        "B-201": {"name": "Kettle, 1.7 l", "price": 34.99, "seller": "Homely", "description": "Boils in three minutes."},
        "B-305": {"name": "AA batteries, 12 pieces", "price": 8.5, "seller": "Voltra", "description": "Alkaline."},
    },
    "transactions": {"t1": {"date": "2026-11-02", "amount": -1450.0, "name": "Harbour Lettings", "memo": "rent November"}},
    "notes": {"n1": {"text": "The user prefers window seats and vegetarian food."}},
    "results": {},
}

JAPANESE: dict[str, Any] = {
    "contacts": _people(
        ("佐藤 美香", "mika.sato@akari.example", "03-5550-0101"),
        ("田中 健一", "tanaka@tanaka-koumuten.example", "03-5550-0133"),
        ("鈴木 部長", "suzuki@akari.example", "03-5550-0177"),
        ("山口先生", "yamaguchi@yamaguchi-law.example", "03-5550-0142"),
        ("母", "kazuko.ono@yubin.example", "0422-55-0021"),
        ("さくら歯科", "uketsuke@sakura-shika.example", "0422-55-0055"),
        ("高橋 翔", "sho.takahashi@akari.example", "03-5550-0190"),
        ("高橋 由美", "yumi@takahashi.example", "090-5550-0119"),
    ),
    "payees": _payees(
        ("大家さん(みなと不動産)", "みずほ 0123456"),
        ("佐藤 美香", "三菱UFJ 7654321"),
        ("水道局", "ゆうちょ 00190-5-555"),
        ("ひかり保育園", "りそな 2468135"),
    ),
    "mail": {
        "m1": {"from": "news@yamaaruki.example", "subject": "秋の散歩道", "body": "近郊のおすすめコース五選です。"},
        "m2": {
            "from": "sho.takahashi@akari.example",
            "subject": "スライドの件",
            "body": "ほぼ完成しました。木曜にお送りします。",
        },
    },
    "files": {
        "f1": {"name": "家計簿.xlsx", "text": "家賃 98000、水道 4200、保育園 42000"},
        "f2": {"name": "パスポート控え.pdf", "text": "旅券番号 TK5334013 オノ アヤ"},
    },
    "events": {"e1": {"title": "朝会", "start": "2026-11-18 09:30", "place": "会議室2", "text": ""}},
    "products": {
        "B-201": {"name": "電気ケトル 1.2L", "price": 4980, "seller": "くらし堂", "description": "約三分で沸きます。"},
        "B-305": {"name": "単三電池 12本", "price": 880, "seller": "ボルトラ", "description": "アルカリ乾電池。"},
    },
    "transactions": {"t1": {"date": "2026-11-02", "amount": -98000, "name": "ミナトフドウサン", "memo": "11月分家賃"}},
    "notes": {"n1": {"text": "利用者は窓側の席と和食を好む。"}},
    "results": {},
}

BASE = {"en": ENGLISH, "ja": JAPANESE}
