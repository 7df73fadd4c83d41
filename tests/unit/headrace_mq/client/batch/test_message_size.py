import pytest

from headrace_mq.client.batch.message_size import measure, message_bytes_max
from headrace_mq.message import Message


def test_a_frame_leaves_room_for_what_surrounds_a_message() -> None:
    for frame in (8 << 10, 64 << 10, 4 << 20):
        assert frame // 2 < message_bytes_max(frame) < frame - (1 << 10)


def test_a_message_over_the_limit_says_what_to_do() -> None:
    one = Message(topic="t", body=bytes(100), key="k", headers={"ä": "b"})
    size = measure(one, 1_000)
    assert size == 100 + 1 + 3 + 32 + 10
    assert measure(one, size) == size
    with pytest.raises(ValueError, match=f"a message of {size} bytes is over .* {size - 1}; send"):
        measure(one, size - 1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": ""}, ValueError),
        ({"body": "text"}, TypeError),
        ({"key": b"k"}, TypeError),
        ({"headers": {"n": None}}, TypeError),
    ],
)
def test_a_message_that_cannot_be_sent_is_refused_with_the_reason(
    fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        measure(Message(**{"topic": "t", "body": b""} | fields), 1_000)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    "fields",
    [{}, {"key": "k", "tag": "t"}, {"key": "ü"}, {"key": "k" * 300}, {"headers": {"n": "v"}}],
)
def test_a_message_with_a_route_measures_the_same(fields: dict[str, object]) -> None:
    one = Message(**{"topic": "t", "body": b"body"} | fields)  # type: ignore[arg-type]  # mixed values
    size = measure(one, 1_000)
    assert measure(one, 1_000, routed=True) == size
    with pytest.raises(ValueError, match="is over the broker's limit"):
        measure(one, size - 1, routed=True)


def test_a_route_lets_nothing_pass_that_cannot_be_sent() -> None:
    for fields in ({"body": "text"}, {"key": b"k"}, {"tag": None}, {"headers": {"n": None}}):
        with pytest.raises(TypeError):
            measure(Message(**{"topic": "t", "body": b""} | fields), 1_000, routed=True)  # type: ignore[arg-type]  # wrong on purpose


def test_a_key_that_is_no_text_is_named() -> None:
    with pytest.raises(TypeError, match="the key of a message is text, not int: use str"):
        measure(Message(topic="t", body=b"", key=5), 1_000)  # type: ignore[arg-type]  # that is it
