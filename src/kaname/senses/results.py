"""Results of the senses, with the provider that made them and what it cost."""

from __future__ import annotations

from typing import Any

from ..core.messages import NOTHING, Media, Usage
from ..core.record import record, replace

_NOT_SURE = "[The reader is not sure of this text: words may be wrong or in the wrong order.]"


@record
class TextLine:
    """A line of text in a picture: its box (left, top, right, bottom, in pixels) and how sure the reader is (0 to 1)."""

    text: str
    box: tuple[float, float, float, float]
    score: float = 1.0


@record
class Page:
    """The text in a picture, line by line.

    `turned`: by how many degrees the picture must be turned clockwise to stand upright: 0, 90, 180 or 270. Vertical Japanese
    cannot be told from turned lines: it has 270. `sure`: False if the text may be wrong or in the wrong order, as for a bad
    picture or vertical Japanese.
    """

    lines: tuple[TextLine, ...] = ()
    by: str = "local"
    usage: Usage = NOTHING
    turned: int = 0
    sure: bool = True

    @property
    def text(self) -> str:
        """Return the text. Lines that stand next to each other become one."""
        rows: list[list[TextLine]] = []
        upright = [replace(line, box=_turn(line.box, self.turned)) for line in self.lines]
        for line in sorted(upright, key=lambda one: (one.box[1] + one.box[3]) / 2):
            middle, height = (line.box[1] + line.box[3]) / 2, line.box[3] - line.box[1]
            last = rows[-1][0] if rows else None
            if last is not None and abs(middle - (last.box[1] + last.box[3]) / 2) < min(height, last.box[3] - last.box[1]) / 2:
                rows[-1].append(line)
            else:
                rows.append([line])
        return "\n".join([" ".join([one.text for one in sorted(row, key=lambda one: one.box[0])]) for row in rows])

    @property
    def told(self) -> str:
        """Return the text as a model is told it: with a warning if the reader is not sure."""
        return self.text if self.sure else f"{self.text}\n{_NOT_SURE}"


def _turn(box: tuple[float, float, float, float], degrees: int) -> tuple[float, float, float, float]:
    """Return a box as it stands when the picture is turned clockwise around its corner."""
    left, top, right, bottom = box
    match degrees:
        case 90:
            return -bottom, left, -top, right
        case 180:
            return -right, -bottom, -left, -top
        case 270:
            return top, -right, bottom, -left
    return box


@record
class Sentence:
    """Something that is said, with its start and end in seconds, and the speaker if voices were told apart."""

    start: float
    end: float
    text: str
    speaker: str = ""


@record
class SpeechText:
    """What is said in a sound, sentence by sentence. `language`: its code, such as "en"."""

    sentences: tuple[Sentence, ...] = ()
    language: str = ""
    seconds: float = 0.0
    by: str = "local"
    usage: Usage = NOTHING

    @property
    def text(self) -> str:
        gap = "" if self.language in ("ja", "zh") else " "
        return gap.join([one.text for one in self.sentences])


@record
class SpokenTurn:
    """A time in which one voice speaks, in seconds."""

    start: float
    end: float
    speaker: str


@record
class Scene:
    """A scene of a video: start and end in seconds, a picture of it, and the text in that picture."""

    start: float
    end: float
    picture: Media
    text: str = ""


@record
class Description:
    """What is in a picture or a video, in words. `sees`: False if no model looked at it."""

    text: str
    sees: bool = False
    by: str = "local"
    usage: Usage = NOTHING
    details: Any = None


@record
class MadeMedia:
    """A picture or sound that was made."""

    media: Media
    by: str = "local"
    usage: Usage = NOTHING
    details: Any = None
