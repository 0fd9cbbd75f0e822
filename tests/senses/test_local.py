"""Text in pictures is read with few errors, in English and Japanese (benchmarks/senses.py measures more)."""

import pytest
from benchmarks.senses import ENGLISH, JAPANESE, rate

from kaname.senses.senses import Senses
from tests.properties import nightly

from .files import picture


@pytest.mark.parametrize(
    ("most", "how"), [(2, {"size": 20, "noise": 20}), *nightly((99, {"size": 20, "noise": 20}), (99, {"size": 28}))]
)
async def test_clean_text_is_read_with_at_most_three_percent_of_wrong_characters(most, how):
    senses = Senses()
    for lines in (ENGLISH[:most], JAPANESE[:most]):
        assert rate("".join(lines), (await senses.read(picture(*lines, **how))).text) <= 0.03
    await senses.close()
