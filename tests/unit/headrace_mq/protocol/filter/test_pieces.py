"""Headers that are judged without being decoded: never otherwise than decoded ones."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.filter.pieces import (
    KNOWN_BYTES_MAX,
    KNOWN_MAX,
    LEARNING_MESSAGES,
    Pieces,
)
from headrace_mq.protocol.filter.places import NOBODY, Chosen

encode = msgspec.msgpack.encode
NAMES = st.sampled_from(["n", "a", "å", "e\u0301", ""])
# Among them texts that hold what the entries begin with, in whatever form.
TEXTS = st.sampled_from(
    ["", "1", "2", "12", "x" * 40, "\u00e1n", "\u00c1n\u00a11", "\u0841n", "n", "a"]
)
HEADERS = st.dictionaries(NAMES, TEXTS, max_size=3)


def headers_of(chosen: Chosen) -> list[dict[str, str]]:
    return [msgspec.msgpack.decode(one) for one in chosen.headers or ()]


def count_of(pieces: Pieces) -> int:
    return sum(len(known.refused) + len(known.selected) for known in pieces._known.values())


@given(
    st.lists(st.lists(HEADERS, min_size=1, max_size=20), min_size=1, max_size=6),
    st.sampled_from(["n = 1", "n > 1", "a IS NULL", "NOT n = 1", "n = '2' OR a = '1'", "TRUE"]),
)
def test_whoever_is_selected_is_selected_by_the_filter(
    columns: list[list[dict[str, str]]], text: str
) -> None:
    pieces, wanted = Pieces(Filter(text)), Filter(text)
    # The second time with what was learned the first time.
    for headers in columns * 2:
        chosen = pieces.chosen(encode(headers), len(headers))
        if chosen is not None:
            assert chosen.places == [n for n, one in enumerate(headers) if wanted.selects(one)]
            assert headers_of(chosen) == [headers[place] for place in chosen.places]


def test_headers_of_one_kind_are_judged_alike_again() -> None:
    pieces = Pieces(Filter("n = 1"))
    headers = [{"n": str(n % 7), "region": "EU"} for n in range(100)]
    for _ in range(3):
        chosen = pieces.chosen(encode(headers), 100)
        assert chosen is not None
        assert chosen.places == list(range(1, 100, 7))
        assert headers_of(chosen) == [{"n": "1", "region": "EU"}] * 15
    assert pieces.chosen(encode(headers[2:8]), 6) == NOBODY


@pytest.mark.parametrize(
    "headers",
    [
        [{}, {"n": "1"}],
        [{"n": "1"}, {}],
        [{"n": "1"}, {"m": "1"}],
        [{"n": "1"}, {"n": "1", "m": "1"}],
        [{str(n): "1" for n in range(16)}] * 2,
        [{"n" * 32: "1"}] * 2,
        [{"n": "x" * KNOWN_BYTES_MAX}] * 2,
    ],
)
def test_what_is_not_of_one_short_kind_is_left_to_the_decoder(
    headers: list[dict[str, str]],
) -> None:
    assert Pieces(Filter("n = 1")).chosen(encode(headers), len(headers)) is None


@pytest.mark.parametrize(
    "column",
    [
        b"",
        b"\x92",
        b"\x92\x81",
        b"\x92\x81\xa1n\x01\x81\xa1n\xa11",
        b"\x92\x81\xa1n\xa1\xff\x81\xa1n\xa11",
        b"\x92\x81\xa1n\xa11\x81\xa1n\xa11\xc0",
        b"\x93\x81\xa1n\xa11\x81\xa1n\xa11",
        b"\xdc\x00\x02\x81\xa1n\xa11\x81\xa1n\xa11",
    ],
)
def test_what_is_no_column_of_headers_is_left_to_the_decoder(column: bytes) -> None:
    pieces = Pieces(Filter("n = 1"))
    assert pieces.chosen(column, 2) is None
    assert count_of(pieces) == 0


def test_a_text_that_looks_like_the_beginning_of_headers_is_none() -> None:
    # Cut at `81 a1 n` there are as many pieces as messages, one of them in the middle of a text.
    column = b"\x93" + b"\x81\xa1n\xa11" + b"\x81\xa1m\xc4\x04\x81\xa1n\xa1" + b"\x81\xa1n\xa12"
    pieces = Pieces(Filter("n = 1"))
    assert pieces.chosen(column, 3) is None
    assert count_of(pieces) == 0


def test_what_is_kept_is_bounded() -> None:
    pieces = Pieces(Filter("n LIKE '%7'"))
    learned = 0
    for first in range(0, 50_000, 100):
        headers = [{f"n{first % 3}": str(n)} for n in range(first, first + 100)]
        chosen = pieces.chosen(encode(headers), 100)
        learned += chosen is not None
        assert count_of(pieces) == pieces._count <= KNOWN_MAX
    # Where nothing comes again little is learned, and then no more than learning may cost.
    assert 10 <= learned <= 10 + 50_000 / 100 / LEARNING_MESSAGES
    many = [{"n": str(n)} for n in range(KNOWN_MAX + 1)]
    assert Pieces(Filter("n = 7")).chosen(encode(many), len(many)) is None


def test_values_that_come_again_after_all_are_learned() -> None:
    pieces = Pieces(Filter("n = 1"))
    for first in range(0, 3_000, 100):
        pieces.chosen(encode([{"n": str(n)} for n in range(first, first + 100)]), 100)
    same = encode([{"n": str(n)} for n in range(100)])
    tries = 2 * LEARNING_MESSAGES
    assert [chosen.places for _ in range(tries) if (chosen := pieces.chosen(same, 100))][-1] == [1]
