"""The search for tags in an encoded column: never another place than the decoder would find."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.filters.filter import Filter
from headrace_mq.protocol.tagged import MATCHES_MAX, TagSearch

encode = msgspec.msgpack.encode
# Among them texts that look like others when they are encoded, with what stands in front of them.
TAGS = st.sampled_from(
    ["", "a", "b", "ab", "rare", "usual", "x" * 31, "x" * 32, "x" * 127, "x" * 128, "x" * 200,
     "\u00e1rare", "\u0861", "\u0124rare", "q\u00a1a", "\u00dc\x00d", "\xa1a", "d" * 36 + "\xa1a"]
)  # fmt: skip


@given(
    st.lists(st.lists(TAGS, min_size=1, max_size=40), min_size=1, max_size=8),
    st.lists(TAGS.filter(bool), min_size=1, max_size=4, unique=True),
)
def test_what_is_found_stands_where_the_decoder_finds_it(
    columns: list[list[str]], wanted: list[str]
) -> None:
    search = TagSearch(wanted)
    for tags in columns:
        found = search.places(encode(tags), len(tags))
        if found is not None:
            assert found == [place for place, tag in enumerate(tags) if tag in wanted]


@pytest.mark.parametrize("count", [1, 15, 16, 100, 127, 128, 200, 300, 65_536])
def test_a_rare_tag_is_found_among_others_of_any_number(count: int) -> None:
    tags = [f"tag {n % 90}" for n in range(count)]
    tags[count // 2] = "rare"
    assert TagSearch(["rare"]).places(encode(tags), count) == [count // 2]
    assert TagSearch(["other"]).places(encode(tags), count) == []
    both = TagSearch(["rare", "tag 0"]).places(encode(tags[:80]), min(count, 80))
    assert both == [place for place, tag in enumerate(tags[:80]) if tag in {"rare", "tag 0"}]


def test_what_ascii_does_not_say_is_left_to_the_decoder() -> None:
    for tags in (["rare", "\u00e4"], ["rare", "x" * 128], ["rare"] * (MATCHES_MAX + 1)):
        assert TagSearch(["rare"]).places(encode(tags), len(tags)) is None
    for wanted in ("\u00e4", "x" * 32):
        assert TagSearch([wanted]).places(encode(["a", wanted]), 2) is None


@pytest.mark.parametrize("column", [b"", b"\x90", b"\x91\xa1a", b"\xdc\x00\x02\xa1a\xa1b"])
def test_a_column_that_begins_otherwise_is_left_to_the_decoder(column: bytes) -> None:
    assert TagSearch(["a"]).places(column, 2) is None


@pytest.mark.parametrize(
    ("text", "is_by_tags"),
    [
        ("_tag = 'a'", True),
        ("_tag IN ('a', 'b') OR _tag = 'c'", True),
        ("_tag = 'a' AND _tag IN ('a', '')", True),
        ("_tag = 'a' AND n = 1", False),
        ("_tag = 'a' OR _key = 'k'", False),
        ("NOT _tag = 'a'", False),
        ("_tag <> 'a'", False),
        ("_tag LIKE 'a'", False),
    ],
)
def test_a_filter_says_whether_tags_alone_decide(text: str, is_by_tags: bool) -> None:
    wanted = Filter(text)
    assert wanted.by_tags == is_by_tags
    if is_by_tags:
        assert wanted.tags is not None
        for tag in ("", "a", "b", "c"):
            assert wanted.selects({}, "k", tag) == (tag in wanted.tags)


def test_an_empty_tag_is_no_tag() -> None:
    assert Filter("_tag = ''").tags == frozenset()
    assert not Filter("_tag = ''").selects({}, "k", "")
