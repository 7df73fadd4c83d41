"""A plot is a PNG that others can read, and its bars are as high as their values."""

import struct
import zlib
from pathlib import Path

import pytest

from samples.bank.plots import COLOURS, HEIGHT, MARGIN, WIDTH, save_bars


def pixels(path: Path) -> list[list[tuple[int, ...]]]:
    """The rows of a picture, after its checksums and its size were checked."""
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    at, content = 8, b""
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack_from(">I", data, at + 8 + length) == (zlib.crc32(kind + body),)
        if kind == b"IHDR":
            assert struct.unpack(">IIBB", body[:10]) == (WIDTH, HEIGHT, 8, 2)
        content += body if kind == b"IDAT" else b""
        at += 12 + length
    plain, row = zlib.decompress(content), 1 + 3 * WIDTH
    lines = [plain[start + 1 : start + row] for start in range(0, len(plain), row)]
    assert len(lines) == HEIGHT
    return [[tuple(line[x : x + 3]) for x in range(0, len(line), 3)] for line in lines]


def heights(path: Path, colour: tuple[int, ...]) -> list[int]:
    """How high each bar of a colour is, from the left."""
    columns = [sum(dot == colour for dot in column) for column in zip(*pixels(path), strict=True)]
    return [height for place, height in enumerate(columns) if height and not columns[place - 1]]


def test_bars_are_as_high_as_their_values(tmp_path: Path) -> None:
    path = tmp_path / "bars.png"
    save_bars(path, {"2026-01-30": (100.0, 50.0), "2026-01-31": (25.0, 0.0)})
    whole = HEIGHT - 2 * MARGIN
    assert heights(path, COLOURS[0]) == pytest.approx([whole, whole / 4], abs=1)
    assert heights(path, COLOURS[1]) == pytest.approx([whole / 2], abs=1)


def test_values_below_zero_hang(tmp_path: Path) -> None:
    path = tmp_path / "bars.png"
    save_bars(path, {"a": (30.0,), "b": (-10.0,)})
    rows = pixels(path)
    lowest = max(y for y, row in enumerate(rows) if COLOURS[0] in row)
    assert lowest == pytest.approx(HEIGHT - MARGIN, abs=2)


@pytest.mark.parametrize("bars", [{}, {"a": ()}, {"a": (0.0,)}])
def test_nothing_to_draw_is_a_picture_too(
    bars: dict[str, tuple[float, ...]], tmp_path: Path
) -> None:
    save_bars(tmp_path / "bars.png", bars)
    assert heights(tmp_path / "bars.png", COLOURS[0]) == []
