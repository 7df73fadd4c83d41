"""Wanted tags in an encoded column: those that a decoder would find, or none are named."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.filter.places import Chosen
from headrace_mq.protocol.filter.tags import Tags

encode = msgspec.msgpack.encode

CONDITIONS = ["_tag = 'rare'", "_tag IN ('a', 'rare', 'rar')", "_tag = '\u00e4rare'"]
# Among them one inside of which a wanted tag seems to begin: the second byte of its first letter.
TEXTS = st.sampled_from(
    ["", "a", "rare", "rar", "usual", "arare", "x" * 31, "x" * 32, "\u00e4rare", "\u0124rare"]
)


@given(st.lists(TEXTS, min_size=1, max_size=40), st.sampled_from(CONDITIONS))
def test_every_chosen_message_is_selected_by_the_filter(tags: list[str], text: str) -> None:
    wanted = Filter(text)
    chosen = Tags(wanted).chosen(encode(tags), len(tags))
    if chosen is not None:
        assert chosen.places == wanted.places_in(len(tags), [], [], tags)
        assert chosen.tags in (None, [tags[place] for place in chosen.places])
        assert chosen.headers is None


def test_the_only_wanted_tag_is_known_of_all_that_are_chosen() -> None:
    chosen = Tags(Filter("_tag = 'rare'")).chosen(encode(["a", "rare", "rare"]), 3)
    assert chosen == Chosen([1, 2], None, ["rare", "rare"])


@given(st.lists(st.sampled_from(["", "a", "rare", "x" * 31]), min_size=1, max_size=300))
def test_short_tags_are_never_left_to_the_decoder(tags: list[str]) -> None:
    assert Tags(Filter("_tag = 'rare'")).chosen(encode(tags), len(tags)) is not None


@pytest.mark.parametrize(
    "column",
    [
        encode([]),
        encode(["rare", "rare", "rare"]),
        encode(["rare", "\u0124rare"]),
        encode(["rare", "x" * 32]),
        encode(["rare", None]),
        encode(["rare", 7]),
        b"\xdd\x00\x00\x00\x02" + encode("rare") * 2,
    ],
)
def test_unknown_columns_are_left_to_the_decoder(column: bytes) -> None:
    assert Tags(Filter("_tag = 'rare'")).chosen(column, 2) is None


@pytest.mark.parametrize("tag", ["x" * 32, "\u00e4"])
def test_a_tag_that_is_long_or_no_ascii_is_left_to_the_decoder(tag: str) -> None:
    assert Tags(Filter(f"_tag = '{tag}'")).chosen(encode([tag, "b"]), 2) is None
