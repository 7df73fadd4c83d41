"""How far one fetch looks for what is selected."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.fetch.filter_workers.jobs import JobResult
from headrace_mq.broker.fetch.filter_workers.read_ahead import FilterRequest
from headrace_mq.broker.fetch.scan import SCAN_MS_MAX, STEP_BYTES, ReadLimits, Scan
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch
from headrace_mq.protocol.filter.batch_filter import BatchFilter, Selection
from headrace_mq.protocol.filter.picks import picked_records
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore

QUEUE = QueueRef("t", 0)
COUNT = 2_000
MANY = 1 << 30
ALL = ReadLimits(MANY, MANY, MANY)


class Ticking:
    """A clock that goes on by as much at every look."""

    def __init__(self, step_ms: int = 0) -> None:
        self._step_ms, self._ms = step_ms, 0

    def now_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        self._ms += self._step_ms
        return self._ms


@pytest.fixture
async def store(tmp_path: Path) -> Any:
    """2,000 batches of four messages; one message of each hundredth batch is rare."""
    held = MessageStore(StoreSettings(directory=tmp_path))
    held.open()
    try:
        for batch in range(COUNT):
            tags = ["rare" if n == 1 and batch % 100 == 7 else "usual" for n in range(4)]
            columns = Columns([], tags, [], [b"x" * 100] * 4, [])
            held.append(encode_batch(QUEUE, columns, born_first_ms=1), retention="forever")
        await held.durable()
        yield held
    finally:
        await held.aclose()


def ways(
    store: MessageStore,
    text: str,
    *,
    clock: Any = None,
    bytes_max: int = MANY,
    bounds: ReadLimits = ALL,
) -> Iterator[tuple[Selection, int]]:
    """One scan after another, until all is read."""
    batch_filter, offset, end = BatchFilter(text), 0, store.range(QUEUE)[1]
    while offset < end:
        scan = Scan(store, clock or Ticking(), bytes_max, picks=True)
        found = store.read(QUEUE, offset, scan.step_bytes)
        gathering, go_on = scan.through(QUEUE, found, batch_filter, bounds)
        assert go_on > offset
        offset = go_on
        yield gathering, go_on


def offsets(gathering: Selection) -> list[int]:
    picked = [record.offset for one in gathering.picked for record in picked_records(one)]
    whole = [record.offset for batch in gathering.batches for record in decode_records(batch)]
    return sorted(picked + whole)


RARE = [batch * 4 + 1 for batch in range(7, COUNT, 100)]


async def test_one_scan_goes_through_all_that_it_may(store: MessageStore) -> None:
    ((gathering, go_on),) = ways(store, "_tag = 'rare'")
    assert (offsets(gathering), go_on) == (RARE, COUNT * 4)


async def test_a_scan_ends_after_as_many_bytes_as_it_may_look_at(store: MessageStore) -> None:
    found = list(ways(store, "_tag = 'nobody'", bytes_max=100_000))
    assert [offsets(gathering) for gathering, _ in found] == [[]] * len(found)
    assert 8 <= len(found) <= 20


async def test_a_scan_ends_when_others_have_waited_long_enough(store: MessageStore) -> None:
    found = list(ways(store, "_tag = 'rare'", clock=Ticking(SCAN_MS_MAX)))
    assert len(found) > 3
    assert [one for gathering, _ in found for one in offsets(gathering)] == RARE


async def test_a_scan_ends_with_enough_and_never_exceeds_its_room(store: MessageStore) -> None:
    first, go_on = next(ways(store, "_tag = 'rare'", bounds=ALL._replace(bytes_enough=1)))
    assert offsets(first) == RARE[: len(offsets(first))]
    assert go_on < COUNT * 4
    parts = list(ways(store, "_tag = 'usual'", bounds=ALL._replace(bytes_max=2_000)))
    assert all(gathering.size <= 2_000 for gathering, _ in parts)
    seen = [one for gathering, _ in parts for one in offsets(gathering)]
    assert sorted({*seen, *RARE}) == list(range(COUNT * 4))


async def test_a_scan_ends_with_as_many_messages_as_are_enough(store: MessageStore) -> None:
    parts = list(ways(store, "_tag = 'usual'", bounds=ALL._replace(messages_enough=10)))
    assert all(gathering.count <= 10 for gathering, _ in parts)
    seen = [one for gathering, _ in parts for one in offsets(gathering)]
    assert sorted({*seen, *RARE}) == list(range(COUNT * 4))


class ReadAhead:
    """What another process looks through, as the test says."""

    def __init__(self, *, takes_jobs: bool = True) -> None:
        self.coming: set[FilterRequest] = set()
        self.found: dict[FilterRequest, JobResult] = {}
        self.asked: list[FilterRequest] = []
        self.gone_on: list[int] = []
        self._takes_jobs = takes_jobs

    def is_coming(self, wanted: FilterRequest) -> bool:
        return wanted in self.coming

    def take(self, wanted: FilterRequest) -> JobResult | None:
        return self.found.pop(wanted, None)

    def go_on(self, wanted: FilterRequest, result: JobResult) -> None:
        self.gone_on.append(result.next)

    def ask(self, wanted: FilterRequest) -> bool:
        if self._takes_jobs:
            self.asked.append(wanted)
        return self._takes_jobs


SOME = "_tag = 'rare'"


def read(
    store: MessageStore, ahead: ReadAhead, offset: int, text: str = SOME, bounds: ReadLimits = ALL
) -> tuple[Selection, int] | None:
    scan = Scan(store, Ticking(), MANY, picks=True, ahead=ahead)  # type: ignore[arg-type]  # as far as it is asked
    return scan.read(QUEUE, offset, BatchFilter(text), bounds)


async def test_a_long_backlog_is_left_to_a_filter_worker(
    store: MessageStore,
) -> None:
    ahead = ReadAhead()
    selected = read(store, ahead, 0)
    assert selected is not None
    gathering, go_on = selected
    assert offsets(gathering) == [offset for offset in RARE if offset < go_on]
    assert ahead.asked == [FilterRequest(QUEUE, go_on, SOME, picks=True)]
    size = len(store.read(QUEUE, 0, 1)[0])
    assert STEP_BYTES < go_on // 4 * size <= 2 * STEP_BYTES


async def test_a_scan_at_its_time_limit_leaves_the_rest_to_a_filter_worker(
    store: MessageStore,
) -> None:
    ahead = ReadAhead()
    scan = Scan(store, Ticking(SCAN_MS_MAX), MANY, picks=True, ahead=ahead)  # type: ignore[arg-type]  # as far as it is asked
    selected = scan.read(QUEUE, 0, BatchFilter(SOME), ALL)
    assert selected is not None
    # Small batches take longer, so this was no more than a step.
    assert selected[1] * len(store.read(QUEUE, 0, 1)[0]) // 4 <= STEP_BYTES
    assert ahead.asked == [FilterRequest(QUEUE, selected[1], SOME, picks=True)]


async def test_a_scan_goes_on_itself_without_workers_or_with_many_matches(
    store: MessageStore,
) -> None:
    unwilling = ReadAhead(takes_jobs=False)
    selected = read(store, unwilling, 0)
    assert selected is not None
    assert (offsets(selected[0]), selected[1]) == (RARE, COUNT * 4)
    willing = ReadAhead()
    selected = read(store, willing, 0, "_tag = 'usual'")
    assert selected is not None
    assert selected[1] == COUNT * 4
    assert willing.asked == []


async def test_a_scan_waits_for_a_result_that_is_on_its_way(store: MessageStore) -> None:
    ahead = ReadAhead()
    ahead.coming.add(FilterRequest(QUEUE, 400, SOME, picks=True))
    assert read(store, ahead, 400) is None


async def test_a_scan_passes_on_a_workers_result_and_starts_the_next_job(
    store: MessageStore,
) -> None:
    ahead = ReadAhead()
    scan = Scan(store, Ticking(), MANY, picks=True)
    first = store.read(QUEUE, 0, 10_000)
    picked = scan.through(QUEUE, first, BatchFilter(SOME), ALL)[0].picked
    result = JobResult(1_000, 100_000, 5, 300, picked, [400])
    ahead.found[FilterRequest(QUEUE, 0, SOME, picks=True)] = result
    selected = read(store, ahead, 0)
    assert selected is not None
    gathering, go_on = selected
    assert (go_on, gathering.count, gathering.size) == (1_000, 5, 300)
    assert gathering.picked == picked
    assert [record.offset for record in decode_records(gathering.batches[0])] == [
        400, 401, 402, 403,
    ]  # fmt: skip
    assert ahead.gone_on == [1_000]


@pytest.mark.parametrize("bounds", [ALL._replace(bytes_max=299), ALL._replace(messages_enough=4)])
async def test_a_scan_filters_again_the_matches_that_an_answer_has_no_room_for(
    store: MessageStore, bounds: ReadLimits
) -> None:
    ahead = ReadAhead(takes_jobs=False)
    ahead.found[FilterRequest(QUEUE, 0, SOME, picks=True)] = JobResult(1_000, 100_000, 5, 300)
    selected = read(store, ahead, 0, bounds=bounds)
    assert selected is not None
    assert offsets(selected[0])[:1] == RARE[:1]
    assert ahead.gone_on == []


async def test_a_whole_batch_that_is_not_there_any_more_is_looked_for_again(
    store: MessageStore,
) -> None:
    ahead = ReadAhead(takes_jobs=False)
    ahead.found[FilterRequest(QUEUE, 0, SOME, picks=True)] = JobResult(
        1_000, 100_000, 5, 300, [], [402]
    )
    selected = read(store, ahead, 0)
    assert selected is not None
    assert offsets(selected[0]) == RARE
