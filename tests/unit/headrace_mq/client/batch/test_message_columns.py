from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.batch.message_columns import MessageColumns, text_bytes
from headrace_mq.message import Message
from headrace_mq.protocol.batch import Columns, _encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
MESSAGES = st.lists(
    st.builds(
        Message,
        topic=st.just("t"),
        body=st.binary(max_size=40),
        key=TEXT,
        tag=TEXT,
        headers=st.dictionaries(TEXT, TEXT, max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@given(messages=MESSAGES)
def test_messages_come_out_as_they_went_in(messages: list[Message]) -> None:
    assert list(MessageColumns.of(messages).messages("t")) == messages


@given(messages=MESSAGES)
def test_the_size_is_never_below_what_is_sent(messages: list[Message]) -> None:
    part = MessageColumns.of(messages)
    columns = Columns(
        list(part.keys), list(part.tags), [dict(entry) for entry in part.headers],
        list(part.bodies), [1_000_000] * len(part),
    )  # fmt: skip
    # The heads of the five columns belong to the batch.
    assert len(_encode(columns)) <= part.size + 32


@given(messages=MESSAGES, data=st.data())
def test_picking_takes_the_messages_at_those_places(messages: list[Message], data: Any) -> None:
    places = data.draw(st.lists(st.integers(0, len(messages) - 1), min_size=1, unique=True))
    part = MessageColumns.of(messages).pick(places)
    assert list(part.messages("t")) == [messages[place] for place in places]
    assert part.size == MessageColumns.of([messages[place] for place in places]).size
    strided = MessageColumns.of(messages).pick(range(0, len(messages), 3))
    assert list(strided.messages("t")) == messages[::3]


def test_columns_of_defaults_take_no_room() -> None:
    part = MessageColumns.of([Message(topic="t", body=b"a"), Message(topic="t", body=b"b")])
    assert (part.keys, part.tags, part.headers) == ((), (), ())


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        (([b"a", b"b"], ["k"]), ValueError),
        (([b"a"], [], ["t", "t"]), ValueError),
        (([b"a"], [b"k"]), TypeError),
        (([b"a"], [], [5]), TypeError),
        (([5],), TypeError),
        (([b"a"], [], [], [{"n": 1}]), TypeError),
        (([b"a"], [], [], [5]), TypeError),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_with_the_reason(
    columns: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        MessageColumns(*columns)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"keys": ["a", 5]}, "message 1 of these: the key of a message is text, not int"),
        ({"tags": [b"a", ""]}, "message 0 of these: the tag of a message is text, not bytes"),
        ({"headers": [{}, {"a": 1}]}, "message 1 of these: the header 'a' of a message is text"),
        ({"headers": [{}, {1: "a"}]}, "message 1 of these: the name of a header is text, not int"),
        ({"headers": [{}, 7]}, "message 1 of these: the headers of a message are a mapping"),
        ({"bodies": [b"", 7]}, "message 1 of these: a message body is bytes, not int"),
    ],
)
def test_the_field_of_a_wrong_type_is_named(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        MessageColumns(**{"bodies": [b"", b""], **columns})


@pytest.mark.parametrize(
    ("columns", "fits"),
    [
        (([b"a"] * 3,), True),
        (([b"a"], ["k" * 256], ["t" * 32]), True),
        (([b"a"], ["k" * 257]), False),
        (([b"a"], [], ["t" * 33]), False),
        (([b"a"], [], [], [{"n": "v"}]), False),
        (([b"a", bytearray(b"b")],), False),
        (([b"a", bytes(10_000)],), False),
    ],
)
def test_a_message_surely_fits_only_if_it_is_certainly_within_the_limits(
    columns: Any, fits: bool
) -> None:
    assert MessageColumns(*columns).surely_fits(10_000) is fits


def test_text_is_measured_in_bytes() -> None:
    assert text_bytes(["a", "ä", ""]) == 3
