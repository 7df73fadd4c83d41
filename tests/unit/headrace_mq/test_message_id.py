"""A message id is text that names one message, or a sentence that says what is wrong with it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import QueueRef, Record
from headrace_mq.message_id import MessageId, message_id

TOPICS = st.text("abcXYZ019._-%", min_size=1, max_size=127)


@given(TOPICS, st.integers(0, 1_023), st.integers(0, (1 << 63) - 1))
def test_an_id_comes_back_as_it_was(topic: str, queue_id: int, offset: int) -> None:
    named = MessageId(QueueRef(topic, queue_id), offset)
    assert MessageId.parse(str(named)) == named


def test_the_id_of_a_record_says_where_it_stands() -> None:
    record = Record(
        queue=QueueRef("orders", 3), offset=1_042, key="", tag="", headers={}, body=b"",
        born_at_ms=0, stored_at_ms=0,
    )  # fmt: skip
    assert str(message_id(record)) == "orders:3:1042"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no message id"),
        ("orders", "topic:queue:offset"),
        ("orders:1", "topic:queue:offset"),
        ("orders:1:2:3", "topic:queue:offset"),
        (":1:2", "1 to 127 characters"),
        ("or ders:1:2", "use letters, digits"),
        ("orders:x:2", "the queue in message id"),
        ("orders:1024:2", "from 0 to 1023"),
        ("orders:-1:2", "the queue in message id"),
        ("orders:1:", "the offset in message id"),
        ("orders:1:-2", "the offset in message id"),
        ("orders:1:+2", "the offset in message id"),
        ("orders:1:1_0", "the offset in message id"),
        ("orders:1:٣", "the offset in message id"),
        ("orders:1:9223372036854775808", "the offset in message id"),
        ("orders:1:" + "9" * 5_000, "the offset in message id"),
    ],
)
def test_text_that_is_no_id_is_refused_with_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        MessageId.parse(text)
