"""Steps of a message, as the trace topic holds them."""

from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.retry_headers import forwarded
from headrace_mq.client.trace.trace_events import (
    TraceStep,
    decode_step,
    encode_step,
    is_traced,
    settled_kind,
    traced,
)
from headrace_mq.message import QueueRef, Record

TEXT = st.text(max_size=20)
STEPS = st.builds(
    TraceStep,
    kind=st.sampled_from(
        ["delivered", "begun", "acknowledged", "failed", "retried", "dead letter"]
    ),
    at_ms=st.integers(0, 1 << 53),
    group=TEXT,
    client_id=TEXT,
    attempt=st.integers(1, 1_000),
    detail=TEXT,
)


def record(topic: str, offset: int, **more: object) -> Record:
    parts = {
        "queue": QueueRef(topic, 1), "offset": offset, "key": "", "tag": "", "headers": {},
        "body": b"", "born_at_ms": 0, "stored_at_ms": 0,
    }  # fmt: skip
    return Record(**(parts | more))  # type: ignore[arg-type]  # fields by name


@given(STEPS)
def test_a_step_is_read_as_it_was_written(step: TraceStep) -> None:
    assert decode_step(encode_step(step)) == step


def test_a_body_that_is_no_step_decodes_to_none() -> None:
    assert decode_step(b"no json") is None
    assert (
        decode_step(b'{"kind": "teleported", "at_ms": 1, "group": "g", "client_id": "c"}') is None
    )


def test_a_record_is_traced_by_its_place() -> None:
    assert traced(record("t", 7)) == ("t:1:7", 0)


def test_a_retried_record_keeps_the_id_that_it_had_first() -> None:
    again = forwarded(
        record("t", 7), "%RETRY%g", error=ValueError(), attempts=2, back_to="%RETRY%g"
    )
    assert traced(record("%RETRY%g", 0, headers=again.headers)) == ("t:1:7", 2)


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_traces_all_that_a_smaller_one_does(
    message_id: str, one: float, other: float
) -> None:
    assert is_traced(message_id, min(one, other)) <= is_traced(message_id, max(one, other))
    assert is_traced(message_id, 1)
    assert not is_traced(message_id, 0)


def test_a_share_is_about_as_large_as_it_says() -> None:
    assert 200 < sum(is_traced(f"t:0:{offset}", 0.1) for offset in range(3_000)) < 400


def test_the_place_where_a_failed_record_was_settled_gives_the_kind_of_step() -> None:
    assert settled_kind("%RETRY%g in 10 ms") == "retried"
    assert settled_kind("%DLQ%g at 3") == "dead letter"
    assert settled_kind("a file of mine") == "acknowledged"
