"""The messages in the pipes of a filter worker."""

from headrace_mq.broker.fetch.filter_workers.jobs import (
    LENGTH,
    READY,
    Job,
    JobResult,
    decode_job,
    decode_result,
    encoded,
)
from headrace_mq.protocol.bodies import Picked
from headrace_mq.store.index.page import IndexEntry


def body(frame: bytes) -> bytes:
    (length,) = LENGTH.unpack(frame[: LENGTH.size])
    assert len(frame) == LENGTH.size + length
    return frame[LENGTH.size :]


def test_a_job_comes_out_as_it_went_in() -> None:
    job = Job(
        "price > 9", True, "t", 3, "/log/1.log", -4_096, [IndexEntry(5_000, 300, 7, 4, 1), IndexEntry(6_000, 1, 11, 1, 2)], 99
    )  # fmt: skip
    decoded = decode_job(body(encoded(job)))
    assert decoded == job
    assert decoded.entries[1].base == 11


def test_a_job_and_its_result_are_decoded_as_they_were_encoded() -> None:
    found = JobResult(12, 1 << 20, 3, 400, [Picked("t", 3, 77, b"messages")], [4, 8])
    assert decode_result(body(encoded(found))) == found


def test_a_process_that_is_ready_says_nothing_else() -> None:
    assert body(READY) == b""
