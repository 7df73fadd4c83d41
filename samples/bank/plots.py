"""Bars as a PNG file, with nothing but zlib: a sample should not need a library for two plots."""

import struct
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["save_bars"]

WIDTH, HEIGHT, MARGIN = 900, 320, 40
WHITE, GREY = (255, 255, 255), (90, 90, 90)
COLOURS = ((59, 110, 165), (217, 128, 50), (96, 153, 78), (150, 90, 160))

# Three by five dots per sign, a row of three bits after the other.
FONT = {
    "0": 0b111101101101111, "1": 0b010110010010111, "2": 0b111001111100111,
    "3": 0b111001111001111, "4": 0b101101111001001, "5": 0b111100111001111,
    "6": 0b111100111101111, "7": 0b111001001010010, "8": 0b111101111101111,
    "9": 0b111101111001111, "-": 0b000000111000000, ",": 0b000000000010100,
}  # fmt: skip
DOT = 2


class Canvas:
    """Dots of colours, row by row from the top."""

    def __init__(self) -> None:
        self.rows = [bytearray(WHITE * WIDTH) for _ in range(HEIGHT)]

    def fill(self, left: int, top: int, width: int, height: int, colour: tuple[int, ...]) -> None:
        for row in self.rows[max(top, 0) : top + height]:
            row[left * 3 : (left + width) * 3] = bytes(colour * width)

    def write(self, text: str, left: int, top: int) -> None:
        """Writes digits, minus signs and commas; leaves room for others."""
        for place, sign in enumerate(text):
            for dot in range(15):
                if FONT.get(sign, 0) >> (14 - dot) & 1:
                    x, y = place * 4 + dot % 3, dot // 3
                    self.fill(left + x * DOT, top + y * DOT, DOT, DOT, GREY)

    def save(self, path: Path) -> None:
        data = b"".join(b"\0" + row for row in self.rows)
        head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
        chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(data)), (b"IEND", b""))
        path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks))


def save_bars(path: Path, bars: Mapping[str, Sequence[float]]) -> None:
    """Draws a group of bars for each label, in one colour per place; below zero they hang.

    The first and the last label stand below, the highest and the lowest value at the left.
    """
    canvas = Canvas()
    values = [value for group in bars.values() for value in group]
    highest, lowest = max([0.0, *values]), min([0.0, *values])
    scale = (HEIGHT - 2 * MARGIN) / ((highest - lowest) or 1)
    zero = MARGIN + round(highest * scale)
    room = (WIDTH - 2 * MARGIN) / max(len(bars), 1)
    for place, group in enumerate(bars.values()):
        width = max(1, int(room * 0.8 / max(len(group), 1)))
        for number, value in enumerate(group):
            left = MARGIN + int(place * room) + number * width
            size = abs(round(value * scale))
            colour = COLOURS[number % len(COLOURS)]
            canvas.fill(left, zero - size if value > 0 else zero, width, size, colour)
    canvas.fill(MARGIN, zero, WIDTH - 2 * MARGIN, 1, GREY)
    canvas.write(f"{highest:,.0f}", MARGIN, MARGIN // 2)
    if lowest < 0:
        canvas.write(f"{lowest:,.0f}", MARGIN + WIDTH // 2, HEIGHT - MARGIN // 2)
    labels = list(bars)
    for label, left in zip(
        labels[:1] + labels[1:][-1:], (MARGIN, WIDTH - 3 * MARGIN), strict=False
    ):
        canvas.write(label, left, HEIGHT - MARGIN // 2)
    canvas.save(path)


def _chunk(kind: bytes, data: bytes) -> bytes:
    checked = kind + data
    return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))
