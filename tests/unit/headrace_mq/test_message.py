import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.message import (
    HEADERS_MAX,
    KEY_BYTES_MAX,
    TAG_BYTES_MAX,
    TOPIC_BYTES_MAX,
    Message,
    QueueRef,
    SendResult,
    check_message,
    check_topic,
)

GOOD = "abcXYZ0189._-%"


@given(st.text(GOOD, min_size=1, max_size=TOPIC_BYTES_MAX))
def test_a_topic_of_allowed_characters_passes_unchanged(topic: str) -> None:
    assert check_topic(topic) == topic


@pytest.mark.parametrize("topic", ["", "t" * (TOPIC_BYTES_MAX + 1)])
def test_a_topic_has_a_length(topic: str) -> None:
    with pytest.raises(ValueError, match=f"1 to 127 characters, this one has {len(topic)}"):
        check_topic(topic)


@given(st.characters(exclude_characters=GOOD, categories=["L", "N", "P", "S", "Z", "C"]))
def test_a_strange_character_is_named(character: str) -> None:
    if character.isascii() and character.isalnum():
        return
    with pytest.raises(ValueError, match="use letters, digits and"):
        check_topic(f"topic{character}")


def test_a_message_at_its_limits_passes() -> None:
    check_message(
        Message(
            topic="t",
            body=b"",
            key="ü" * (KEY_BYTES_MAX // 2),
            tag="ü" * (TAG_BYTES_MAX // 2),
            headers={f"{n}": "" for n in range(HEADERS_MAX)},
        )
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"topic": "a b"}, "use letters"),
        ({"key": "ü" * (KEY_BYTES_MAX // 2) + "x"}, "a key has at most 1024 bytes"),
        ({"tag": "ü" * (TAG_BYTES_MAX // 2) + "x"}, "a tag has at most 128 bytes"),
        ({"headers": {f"{n}": "" for n in range(65)}}, "at most 64 headers, this one has 65"),
    ],
)
def test_a_message_over_a_limit_is_refused_with_the_limit(
    fields: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        check_message(Message(**{"topic": "t", "body": b""} | fields))  # type: ignore[arg-type]  # fields of a Message


@pytest.mark.parametrize("body", ["text", bytearray(b"x"), None])
def test_a_body_is_bytes(body: object) -> None:
    with pytest.raises(TypeError, match=f"bytes, not {type(body).__name__}"):
        check_message(Message(topic="t", body=body))  # type: ignore[arg-type]  # that is the point


def test_values_are_frozen_and_compare_by_content() -> None:
    message = Message(topic="t", body=b"x")
    assert message == Message(topic="t", body=b"x")
    with pytest.raises(AttributeError):
        message.topic = "u"  # type: ignore[misc]  # that is the point


def test_a_send_is_no_duplicate_unless_said() -> None:
    assert SendResult(QueueRef("t", 1), 5) == (("t", 1), 5, False)
