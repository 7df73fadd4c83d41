import pytest
from msgspec.structs import replace

from headrace_mq.client.producer.scheduled import When, envelope
from headrace_mq.message import Message
from headrace_mq.protocol.scheduled import (
    AHEAD_MS_MAX,
    AT_HEADER,
    DELAY_HEADER,
    SCHEDULE_TOPIC,
    TOPIC_HEADER,
)

MESSAGE = Message(topic="t", body=b"x", key="k", tag="g", headers={"a": "b"})


def test_a_time_a_delay_and_a_level_say_when() -> None:
    assert When.of(at_ms=7, delay_ms=None, level=None).due_at_ms(100) == 7
    assert When.of(at_ms=None, delay_ms=7, level=None).due_at_ms(100) == 107
    assert When.of(at_ms=None, delay_ms=None, level="2h").due_at_ms(100) == 7_200_100


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "say once"),
        ({"at_ms": 1, "level": "1s"}, "say once"),
        ({"at_ms": -1}, "not negative"),
        ({"delay_ms": -1}, "a delay is 0"),
        ({"delay_ms": AHEAD_MS_MAX + 1}, "366 days"),
        ({"level": "1d"}, "use one of"),
    ],
)
def test_anything_but_one_good_answer_is_refused(given, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        When.of(**{"at_ms": None, "delay_ms": None, "level": None} | given)


def test_a_year_ahead_is_the_limit() -> None:
    assert When(100 + AHEAD_MS_MAX, 0).due_at_ms(100) == 100 + AHEAD_MS_MAX
    with pytest.raises(ValueError, match="366 days"):
        When(101 + AHEAD_MS_MAX, 0).due_at_ms(100)


def test_the_envelope_holds_the_message_and_says_where_to_and_when() -> None:
    at = envelope(MESSAGE, When(9, 0))
    assert (at.topic, at.key, at.tag, at.body) == (SCHEDULE_TOPIC, "k", "g", b"x")
    assert at.headers == {"a": "b", TOPIC_HEADER: "t", AT_HEADER: "9"}
    assert envelope(MESSAGE, When(None, 5)).headers[DELAY_HEADER] == "5"


@pytest.mark.parametrize(
    "message",
    [
        Message(topic="no spaces", body=b""),
        Message(topic=SCHEDULE_TOPIC, body=b""),
        Message(topic="t", body=b"", headers={AT_HEADER: "1"}),
    ],
)
def test_a_message_that_cannot_be_delivered_is_refused_before_it_is_sent(message: Message) -> None:
    with pytest.raises(ValueError, match=r"use letters|SCHEDULE|are the schedule's"):
        envelope(message, When(0, 0))


@pytest.mark.parametrize(
    "wrong",
    [{"key": 5}, {"tag": None}, {"headers": {"a": 1}}, {"headers": {1: "a"}}, {"headers": "a"}],
)
def test_a_header_that_is_no_text_is_named_before_it_is_sent(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=r"is text, not|are a mapping"):
        envelope(replace(MESSAGE, **wrong), When(0, 0))
