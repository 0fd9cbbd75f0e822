"""`find_addresses`: find Japanese addresses, from the prefecture or a large city up to the number of the house or the room."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import regex

from .kinds import DataForm
from .scan import find

_PREFECTURES = (
    "北海道|東京都|京都府|大阪府|青森県|岩手県|宮城県|秋田県|山形県|福島県|茨城県|栃木県|群馬県|埼玉県|千葉県|神奈川県|新潟県|富山県|石川県|福井県|山梨県|長野県"
    "|岐阜県|静岡県|愛知県|三重県|滋賀県|兵庫県|奈良県|和歌山県|鳥取県|島根県|岡山県|広島県|山口県|徳島県|香川県|愛媛県|高知県|福岡県|佐賀県|長崎県|熊本県"
    "|大分県|宮崎県|鹿児島県|沖縄県"
)
_CITIES = (  # which have wards, and are written without their prefecture
    "札幌|仙台|さいたま|千葉|横浜|川崎|相模原|新潟|静岡|浜松|名古屋|京都|大阪|堺|神戸|岡山|広島|北九州|福岡|熊本"
)


@lru_cache(maxsize=1)
def _forms() -> tuple[DataForm, ...]:
    letter, number = r"[\p{Han}\p{Hiragana}\p{Katakana}ー々ヶ]", r"(?:[0-9]{1,5}|[一二三四五六七八九十]{1,3}(?=丁目|番))"
    particle = "(?![のでをがにへ])"  # 千葉県の市で3件 is a sentence
    dash = r"[-‐‑‒–—―−ーの]"
    place = rf"(?:(?:{_PREFECTURES}) ?{particle}{letter}{{1,8}}?[市区町村郡]|(?:{_CITIES})市 ?{letter}{{1,5}}?区)"
    house = rf"{number}(?:(?:丁目|番地の?|番|号|{dash}) ?(?:[0-9]{{1,5}}(?![0-9年月日時])|(?=[^0-9]|$))){{0,4}}"
    room = rf"(?:[ ]?(?:{letter}|[A-Za-z]){{2,20}} ?[0-9]{{1,4}}(?:号室?|F|階)?(?![0-9年月日時]))?"
    pattern: Any = regex.compile(rf"{place} ?{particle}{letter}{{0,20}}? ?{house}{room}")
    return (DataForm("address", pattern, words=("都", "道", "府", "県", "市")),)


def find_addresses(text: str) -> list[tuple[int, int, str]]:
    """Find Japanese addresses, for `Privacy(detectors=[find_addresses])`.

    Args:
        text: The text to search.

    Returns:
        For each address, its start, its end, and the kind "address".
    """
    return [(one.start, one.end, one.kind) for one in find(text, _forms())]
