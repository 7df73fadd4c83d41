"""Headers of which one number is read and nothing else: never judged otherwise than decoded ones."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.filter.numbers import NumberHeaders
from headrace_mq.protocol.filter.places import NOBODY, Chosen

encode = msgspec.msgpack.encode
# Numbers, what only one of the readers takes for one, and what is none.
ODD = st.sampled_from(
    ["", "null", "nan", "NaN", "inf", "-Infinity", "1e400", "-1e400", "007", "+5", ".5", "5.", "1e2",
     " 1", "1_0", "0x10", "true", "9007199254740993", "9007199254740992", "-0", "1" * 41,
     "0." + "3" * 50]
)  # fmt: skip
TEXTS = st.one_of(
    ODD, st.integers().map(str), st.floats(allow_nan=False).map(str), st.integers(-3, 3).map(str)
)
HEADERS = st.dictionaries(st.sampled_from(["n", "m", "note"]), TEXTS, max_size=3)
CONDITIONS = [
    "n = 1",
    "n > 1",
    "n <= 1",
    "2 > n",
    "n BETWEEN -1 AND 1",
    "n IN (2, 3.5, -1)",
    "n > 9007199254740992",
    "n > 1e399",
    "n >= 0 AND m < 2",
    "note = '1' AND n < 0",
    "n = 1 OR n = 3",
    "n > 1 AND NOT n = 2",
]


@given(st.lists(HEADERS, min_size=1, max_size=40), st.sampled_from(CONDITIONS))
def test_every_selected_message_is_selected_by_the_filter(
    headers: list[dict[str, str]], text: str
) -> None:
    wanted = Filter(text)
    chosen = NumberHeaders(Filter(text)).chosen(encode(headers), len(headers))
    if chosen is not None:
        assert chosen.places == [n for n, one in enumerate(headers) if wanted.selects(one)]
        assert [msgspec.msgpack.decode(one) for one in chosen.headers or ()] == [
            headers[place] for place in chosen.places
        ]


@pytest.mark.parametrize("number", ["9999.99", "12345678901234567890", "1e5", "9900"])
def test_the_few_within_the_bounds_are_asked_the_whole_condition(number: str) -> None:
    numbers = NumberHeaders(Filter("price >= 9900 AND region IN ('EU', 'US')"))
    headers = [{"order": str(n), "price": f"{n}.5", "region": "EU"} for n in range(100)]
    headers[40] |= {"price": number}
    headers[41] |= {"price": number, "region": "ASIA"}
    del headers[42]["price"]
    chosen = numbers.chosen(encode(headers), 100)
    assert chosen == Chosen([40], [msgspec.Raw(encode(headers[40]))])
    assert numbers.chosen(encode(headers[:40]), 40) == NOBODY


def test_unknown_headers_are_left_to_the_decoder() -> None:
    numbers = NumberHeaders(Filter("n > 1"))
    few = [{"n": "0"}] * 20
    # Many within the bounds; a number that only Python reads; one too many, and no headers at all.
    assert numbers.chosen(encode([{"n": "2"}] * 10 + few), 30) is None
    assert numbers.chosen(encode([{"n": "+2"}, *few]), 21) is None
    assert numbers.chosen(encode([{"n": "2"}, *few]), 20) is None
    assert numbers.chosen(encode([]), 20) is None
    assert numbers.chosen(b"\x91", 1) is None


def test_damaged_headers_within_the_bounds_are_an_error() -> None:
    headers = [{"n": "0", "note": ""} for _ in range(20)]
    headers[3] = {"n": "2", "note": "\u00e9"}
    data = encode(headers).replace("\u00e9".encode(), b"\xff\xff")
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        NumberHeaders(Filter("n > 1")).chosen(data, 20)
