"""Messages in words; what is printed by the commands themselves is tested with them."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.figures.records import (
    content,
    described,
    id_of,
    sender_of,
    shortened,
    text_of,
    words,
)
from headrace_mq.access.heads import MessageHead
from headrace_mq.client.fetch.damage import Damaged, marker_of
from headrace_mq.message import QueueRef, Record


def record(body: bytes, key: str = "k", tag: str = "") -> Record:
    return Record(
        queue=QueueRef("t", 1), offset=7, key=key, tag=tag, headers={"a": "b"}, body=body,
        born_at_ms=1, stored_at_ms=2, producer_id=9,
    )  # fmt: skip


@given(st.binary(max_size=400))
def test_no_body_moves_the_cursor(body: bytes) -> None:
    assert all(one.isprintable() or one in "\n\t" for one in text_of(body))
    line = shortened(body)
    assert line.isprintable()
    assert len(line) <= 60


@pytest.mark.parametrize(
    ("body", "text"),
    [(b"plain\n", "plain"), ("ä".encode() * 100, "ä" * 59 + "…"), (b"\xff\x00", "ff 00")],
)
def test_a_row_shows_the_beginning_of_a_body(body: bytes, text: str) -> None:
    assert content(record(body)) == text


def test_a_head_says_what_its_content_needs() -> None:
    head = MessageHead(
        queue=QueueRef("%DLQ%kitchen", 0), offset=7, key="k", tag="", headers={"%head": "1200"}, body=b"",
        born_at_ms=1, stored_at_ms=2,
    )  # fmt: skip
    assert content(head) == "hidden: needs consume on group:kitchen"
    told = described(head)
    assert (told["hidden"], told["bytes"]) == ("needs consume on group:kitchen", 1200)
    assert (told["body"], told["body_base64"], told["headers"]) == (None, None, {})


def test_a_message_whose_headers_say_that_it_is_hidden_is_shown() -> None:
    forged = msgspec.structs.replace(record(b""), headers={"%head": "7"})
    assert content(forged) == ""
    told = described(forged)
    assert (told["hidden"], told["bytes"], told["body"], told["headers"]) == (
        "",
        0,
        "",
        {"%head": "7"},
    )


def test_programs_get_every_field() -> None:
    told = described(record(b"\xff"))
    assert (told["id"], told["body"], told["body_base64"]) == ("t:1:7", None, "/w==")
    assert (told["headers"], told["key"], told["offset"]) == ({"a": "b"}, "k", 7)
    assert id_of(record(b"")) == "t:1:7"
    assert sender_of(record(b""), {}) == {"producer_id": 9, "sender": None}


def test_a_word_is_one_line_and_damage_says_what_it_is() -> None:
    assert words(record(b"", key="a\nb", tag="ü")) == ("'a\\nb'", "ü")
    marker = marker_of(Damaged(QueueRef("t", 1), 7, 8, "no codec 99"), at_ms=1)
    assert "no codec 99" in content(marker)
