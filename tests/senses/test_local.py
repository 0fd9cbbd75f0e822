"""Text in pictures is read with few errors, in English and Japanese (benchmarks/senses.py measures more)."""

from benchmarks.senses import ENGLISH, JAPANESE, rate

from kaname.senses.senses import Senses

from .files import picture


async def test_clean_text_is_read_with_at_most_three_percent_of_wrong_characters():
    senses = Senses()
    for lines in (ENGLISH, JAPANESE):
        for how in ({"size": 28}, {"size": 20, "noise": 20}):
            assert rate("".join(lines), (await senses.read(picture(*lines, **how))).text) <= 0.03
    await senses.close()
