"""
A journey as a picture: a box for each hop, in the column of where it happens, and a line from the hop that it follows.

    sender │ queue │ handler │ store │ topic │ reader
      □ ───▶ □
             └─────▶ □

Used by the page of a trace, which draws it as SVG; the page says the same in a table, which a screen reader reads. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.journey.hop import LANES

__all__ = ["HopBox", "JourneyPicture", "picture_of", "took_words"]

# In units of the picture, of which a page's width has about as many as it has pixels.
_LANE, _BOX, _TALL, _ROW, _TOP = 190, 170, 46, 62, 34
# Characters of a name that fit into a box.
_NAME_MAX: Final = 21


@dataclass(frozen=True, slots=True, kw_only=True)
class HopBox:
    """A hop in the picture.

    Attributes:
        hop: as a trace has it.
        x, y: its left upper corner.
        name: as much of its name as fits.
        took: since the hop before, in words; empty: not known.
    """

    hop: Mapping[str, Any]
    x: int
    y: int
    name: str
    took: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JourneyPicture:
    """All boxes and lines.

    Attributes:
        width, height: of the picture.
        box_width, box_height: of each box.
        lanes: the columns with their middles.
        boxes: in the order of the hops.
        lines: as paths of SVG.
    """

    width: int
    height: int
    box_width: int
    box_height: int
    lanes: Sequence[tuple[str, int]]
    boxes: Sequence[HopBox]
    lines: Sequence[str]


def picture_of(hops: Sequence[Mapping[str, Any]]) -> JourneyPicture:
    """Returns the picture of a journey.

    Args:
        hops: of a trace, in their order; each has a number, counted from 1, and the number of the one that it follows.
    """
    boxes = [
        HopBox(
            hop=one,
            x=LANES.index(one["lane"]) * _LANE + (_LANE - _BOX) // 2,
            y=_TOP + place * _ROW,
            name=_short(one["name"]),
            took=took_words(one["took_ms"]),
        )
        for place, one in enumerate(hops)
    ]
    lines = [
        _line(boxes[one["after"] - 1], boxes[one["number"] - 1]) for one in hops if one["after"]
    ]
    return JourneyPicture(
        width=len(LANES) * _LANE,
        height=_TOP + len(hops) * _ROW,
        box_width=_BOX,
        box_height=_TALL,
        lanes=[(lane, place * _LANE + _LANE // 2) for place, lane in enumerate(LANES)],
        boxes=boxes,
        lines=lines,
    )


def took_words(took_ms: int | None) -> str:
    """Writes how long a hop took: milliseconds below a second, else seconds; empty where it is not known."""
    if took_ms is None:
        return ""
    return f"{took_ms:+,} ms" if abs(took_ms) < 1_000 else f"{took_ms / 1_000:+,.1f} s"


def _line(begin: HopBox, end: HopBox) -> str:
    """From below the middle of a box to the nearest side of another one; straight down in the same column."""
    x, y = begin.x + _BOX // 2, begin.y + _TALL
    if begin.x == end.x:
        return f"M{x} {y}V{end.y}"
    side = end.x if end.x > begin.x else end.x + _BOX
    return f"M{x} {y}V{end.y + _TALL // 2}H{side}"


def _short(name: str) -> str:
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _NAME_MAX else f"{text[: _NAME_MAX - 1]}…"
