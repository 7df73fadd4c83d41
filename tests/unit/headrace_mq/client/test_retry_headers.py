import msgspec
import pytest

from headrace_mq.client.retry_headers import (
    ORIGIN_HEADER,
    Origin,
    dead_letter_topic,
    forwarded,
    origin_of,
    restored,
    retry_topic,
)
from headrace_mq.message import Message, QueueRef, Record

RETRY = retry_topic("g")
RECORD = Record(
    queue=QueueRef("orders", 2),
    offset=17,
    key="k",
    tag="t",
    headers={"a": "b"},
    body=b"x",
    born_at_ms=1,
    stored_at_ms=2,
)


def arrived(message: Message, offset: int = 5) -> Record:
    return Record(
        queue=QueueRef(message.topic, 0),
        offset=offset,
        key=message.key,
        tag=message.tag,
        headers=message.headers,
        body=message.body,
        born_at_ms=8,
        stored_at_ms=9,
    )


def failed(record: Record, reason: str = "no") -> Message:
    return forwarded(record, RETRY, error=ValueError(reason), attempts=1, back_to=RETRY)


def test_topics_are_named_after_the_group_and_a_group_that_names_none_is_refused() -> None:
    assert (RETRY, dead_letter_topic("g")) == ("%RETRY%g", "%DLQ%g")
    for group in ("with spaces", "x" * 121):
        with pytest.raises(
            ValueError, match=f"group '{group}' cannot have retry topics.* at most 120"
        ):
            retry_topic(group)
    assert len(retry_topic("x" * 120)) == 127


def test_a_failed_record_carries_its_id_its_birth_its_attempt_and_the_reason() -> None:
    message = failed(RECORD)
    assert (message.topic, message.key, message.tag, message.body) == (RETRY, "k", "t", b"x")
    assert message.headers["a"] == "b"
    assert origin_of(arrived(message)) == Origin(
        topic="orders", queue_id=2, offset=17, born_at_ms=1, attempt=1, reason="ValueError: no",
        back_to=RETRY,
    )  # fmt: skip


def test_every_further_failure_counts_on_and_keeps_the_first_place() -> None:
    again = arrived(failed(arrived(failed(RECORD)), "still no"))
    origin = origin_of(again)
    assert origin is not None
    assert (origin.topic, origin.offset, origin.attempt) == ("orders", 17, 2)
    assert origin.reason == "ValueError: still no"


def test_a_restored_record_is_what_it_was_and_still_tells_its_attempt() -> None:
    record = restored(arrived(failed(RECORD)))
    assert (record.queue, record.offset, record.born_at_ms) == (RECORD.queue, 17, 1)
    assert record.stored_at_ms == 9
    origin = origin_of(record)
    assert origin is not None
    assert origin.attempt == 1
    assert restored(RECORD) is RECORD


def test_headers_that_an_application_copied_elsewhere_say_nothing() -> None:
    copied = Message(topic="other", body=b"", headers=failed(RECORD).headers)
    assert origin_of(arrived(copied)) is None
    assert restored(arrived(copied)) == arrived(copied)


def test_a_long_reason_is_cut_and_a_strange_header_is_no_origin() -> None:
    origin = origin_of(arrived(failed(RECORD, "x" * 9_999)))
    assert origin is not None
    assert len(origin.reason) == 500
    strange = msgspec.structs.replace(RECORD, headers={ORIGIN_HEADER: "home"})
    assert origin_of(strange) is None
