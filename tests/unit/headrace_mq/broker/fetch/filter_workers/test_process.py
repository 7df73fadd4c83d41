"""The jobs of a filter worker."""

import io
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace_mq.broker.fetch.filter_workers.jobs import (
    LENGTH,
    READY,
    Job,
    JobResult,
    decode_result,
    encoded,
)
from headrace_mq.broker.fetch.filter_workers.process import READ_BYTES, run_job, serve
from headrace_mq.protocol.filter.batch_filter import BatchFilter
from headrace_mq.protocol.filter.picks import picked_records
from headrace_mq.store.message_store import MessageStore
from tests.unit.headrace_mq.broker.fetch.filter_workers.conftest import (
    BATCHES,
    QUEUE,
    RARE,
    RECORDS,
)

MANY = 1 << 30
END = BATCHES * RECORDS
PICKED = [base + 7 for base in range(0, END, RECORDS) if base != 5_000]


def job(store: MessageStore, offset: int = 0, *, enough: int = MANY, picks: bool = True) -> Job:
    stretch = store.file_range_from(QUEUE, offset, MANY, MANY)
    assert stretch is not None
    path, shift, entries = stretch
    return Job(RARE, picks, *QUEUE, str(path), shift, entries, enough)


def offsets(result: JobResult) -> list[int]:
    return [record.offset for one in result.picked for record in picked_records(one)]


def test_a_job_finds_all_matches_and_leaves_matching_batches_whole(store: MessageStore) -> None:
    asked = job(store)
    # More than is read at a time, so that it is read in several pieces.
    size = sum(entry.length for entry in asked.entries)
    assert size > 2 * READ_BYTES
    result = run_job(asked, BatchFilter(RARE))
    assert result.next == END
    assert result.looked_bytes == size
    assert result.count == len(PICKED) + RECORDS
    assert result.wholes == [5_000]
    assert offsets(result) == PICKED


def test_a_job_ends_when_it_found_enough_and_the_next_one_goes_on_there(
    store: MessageStore,
) -> None:
    found, wholes, offset, jobs = list[int](), list[int](), 0, 0
    while offset < END:
        result = run_job(job(store, offset, enough=2_000), BatchFilter(RARE))
        assert result.next > offset
        found += offsets(result)
        wholes += result.wholes
        offset = result.next
        jobs += 1
    assert (found, wholes) == (PICKED, [5_000])
    assert jobs > 5


def test_without_picks_all_batches_with_something_wanted_are_whole(store: MessageStore) -> None:
    result = run_job(job(store, picks=False), BatchFilter(RARE))
    assert result.picked == []
    assert result.wholes == list(range(0, END, RECORDS))


def test_a_job_ends_before_a_damaged_batch(store: MessageStore) -> None:
    asked = job(store)
    bad = asked.entries[60]
    path = Path(asked.path)
    with path.open("r+b") as file:
        file.seek(bad.position + asked.shift + 500)
        file.write(b"\xff")
    result = run_job(asked, BatchFilter(RARE))
    assert result.next == bad.base
    assert offsets(result) == [offset for offset in PICKED if offset < bad.base]


def test_a_job_ends_at_the_end_of_the_file(store: MessageStore, tmp_path: Path) -> None:
    asked = job(store)
    last = asked.entries[80]
    cut = tmp_path / "cut"
    cut.write_bytes(Path(asked.path).read_bytes()[: last.position + asked.shift + 10])
    result = run_job(msgspec.structs.replace(asked, path=str(cut)), BatchFilter(RARE))
    assert result.next == last.base


def test_a_batch_of_another_queue_at_its_place_is_not_sound(store: MessageStore) -> None:
    asked = msgspec.structs.replace(job(store), queue_id=5)
    assert run_job(asked, BatchFilter(RARE)) == JobResult(0)


def test_jobs_are_done_in_turn_and_a_file_that_is_gone_brings_nothing(store: MessageStore) -> None:
    gone = msgspec.structs.replace(job(store, 300), path="/nowhere/1.log")
    answers = io.BytesIO()
    # Cut off in the second half of a third job, as a broker that is killed would leave it.
    serve(io.BytesIO(encoded(job(store)) + encoded(gone) + encoded(gone)[:-9]), answers)
    said, found = answers.getvalue(), []
    assert said.startswith(READY)
    at = len(READY)
    while at < len(said):
        (length,) = LENGTH.unpack(said[at : at + LENGTH.size])
        at += LENGTH.size + length
        found.append(decode_result(said[at - length : at]))
    assert [one.next for one in found] == [END, 300]


@pytest.mark.parametrize("reads", [True, False])
def test_a_process_ends_with_its_pipes(store: MessageStore, reads: bool) -> None:
    command = [sys.executable, "-m", "headrace_mq.broker.fetch.filter_workers.process"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(len(READY)) == READY
        if reads:
            process.stdin.write(encoded(job(store)))
            process.stdin.close()
            (length,) = LENGTH.unpack(process.stdout.read(LENGTH.size))
            assert decode_result(process.stdout.read(length)).next == END
        else:
            # Whoever asked is gone when there is an answer.
            process.stdout.close()
            os.write(process.stdin.fileno(), encoded(job(store)))
            process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
