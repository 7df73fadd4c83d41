"""A part of a rebuild: it takes what lies before it, and its failure ends at itself."""

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace._runtime.clock import SystemClock
from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.decode import Decoded, tell
from headrace.rebuild.local.part import Part
from headrace.rebuild.phases import Phases
from headrace.rebuild.switch import Means, Shadow

Q0 = ("ledger.events", 0)


@pytest.fixture
def make_part(read_models: ReadModels, ledger: Any) -> Any:
    def make() -> Part:
        async def find_nothing(*_: object) -> list[Any]:
            return []

        async def feed(*_: object) -> Any:
            return
            yield

        means = Means(feed=feed, serializer=ledger.serializer, missing=find_nothing, live_wait_ms=0)
        shadow = Shadow(projection=ledger.accounts, generation=2, owner="the test")
        return Part(read_models, shadow, means, Phases(SystemClock(), None))

    return make


@pytest.fixture
def streams(ledger: Any) -> list[Any]:
    return [
        ledger.stream("a", version, ledger.Booked(partner="p", amount=version))
        for version in range(1, 6)
    ]


def decoded(end: int, offsets: Sequence[int], streams: list[Any]) -> Decoded:
    told = [tell(stream, lambda _: True) for stream in streams]
    return Decoded(end, offsets, told, [len(stream.events) for stream in streams])


async def test_a_part_folds_what_lies_ahead_and_leaves_out_what_it_has_folded(
    make_part: Any, streams: list[Any], read_models: ReadModels, ledger: Any
) -> None:
    first = make_part()
    await first.stand({Q0: (0, 3)}, starts={}, messages_max=10, kept_max=10)
    assert (first.needs(Q0, 1), first.needs(Q0, 0)) == (True, False)
    await first.add(Q0, decoded(3, range(3), streams[:3]))
    await first.write()
    second = make_part()
    await second.stand({Q0: (0, 7)}, starts={}, messages_max=10, kept_max=10)
    assert (second.position(Q0), second.needs(Q0, 3), second.needs(Q0, 7)) == (3, False, True)
    await second.add(Q0, decoded(7, [1, 2, 5, 6], streams[1:]))
    await second.write()
    await second.bring_live(verify=False, switch=True)
    assert second.report is not None
    assert (second.report.start_offsets, second.report.events) == ({"ledger.events/0": 3}, 2)
    wanted = fold_streams(ledger.accounts, {}, streams)
    reader = read_models.reader(ledger.accounts)
    assert {row.account_id: row async for row in reader.rows()} == wanted


async def test_a_part_begins_where_a_queue_began_unless_messages_from_there_on_are_gone(
    make_part: Any,
) -> None:
    part = make_part()
    await part.stand({Q0: (4, 9)}, starts={Q0: 4}, messages_max=10, kept_max=10)
    assert (part.position(Q0), part.needs(Q0, 4), part.needs(Q0, 5)) == (4, False, True)
    with pytest.raises(ProjectionError, match="events from 4 on are gone"):
        await part.stand({Q0: (5, 9)}, starts={Q0: 4}, messages_max=10, kept_max=10)


async def test_the_failure_of_a_part_is_kept_and_its_shadow_dropped(
    make_part: Any, read_models: ReadModels
) -> None:
    part = make_part()
    with capture_logs() as logs:
        async with part.attempt():
            await part.stand({Q0: (4, 9)}, starts={}, messages_max=10, kept_max=10)
    with pytest.raises(ProjectionError, match="events from 0 on are gone"):
        raise part.failure
    assert not part.needs(Q0, 9)
    assert (await read_models.state("accounts")).rebuild_generation is None
    assert [(log["event"], log["projection"]) for log in logs] == [
        ("a rebuild has failed", "accounts")
    ]
