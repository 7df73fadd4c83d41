"""Messages of the event topic that are nobody's events."""

import json

import pytest
from structlog.testing import capture_logs

from headrace.errors import NoEventStream, SerializationError
from headrace.subscriptions.foreign import stream_or_none

QUEUE = ("app.events", 1)


@pytest.mark.parametrize(
    "body", [b"", b"junk", b"{}", b"[" * 100_000, b"\xff", b'{"aggregate_id": 5}']
)
def test_a_message_without_events_is_left_out_with_its_place_in_the_log(serializer, body) -> None:
    with capture_logs() as logs:
        assert stream_or_none(serializer.decode_stream, body, QUEUE, 7) is None
    (told,) = logs
    assert (told["topic"], told["queue"], told["offset"]) == ("app.events", 1, 7)


def test_a_message_with_an_aggregate_that_does_not_decode_is_an_error(serializer) -> None:
    body = json.dumps({"aggregate_id": "a"}).encode()
    with pytest.raises(SerializationError) as raised:
        stream_or_none(serializer.decode_stream, body, QUEUE, 7)
    assert not isinstance(raised.value, NoEventStream)
