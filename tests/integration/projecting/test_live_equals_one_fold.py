"""Whatever the batching, duplicates, gaps and restarts: the live rows are those of one pure fold."""

import asyncio
import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.projections.definition.fold import fold_streams
from headrace.projections.definition.projection import Projection
from samples.bank.read_models import balances, statement

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["anna", "ben", "zoë"]),
        st.sampled_from(
            ["deposit", "withdraw", "send", "receive", "there and back", "close", "refuse"]
        ),
        st.integers(1, 1_000),
    ),
    min_size=1,
    max_size=40,
)


def renamed(projection: Projection[Any], name: str) -> Projection[Any]:
    """The same projection with a table of its own."""
    copied = copy.copy(projection)
    copied.name = name
    return copied


def draw_delivery(data: st.DataObject, streams: list[Any]) -> list[Any]:
    """Publishes again what was published, loses what a later version lets us notice."""
    last = {stream.aggregate_id: stream.version for stream in streams if stream.version}
    delivered: list[Any] = []
    for number, stream in enumerate(streams):
        lost = stream.version != last.get(stream.aggregate_id) and data.draw(st.integers(0, 9)) == 0
        if not lost:
            delivered.append(stream)
        if data.draw(st.integers(0, 4)) == 0:
            first = data.draw(st.integers(0, number))
            delivered += [again for again in streams[first : number + 1] if again is not stream]
    return delivered


@pytest.fixture
def names() -> Iterator[str]:
    """A name for each example's projection: the database is shared by the examples."""
    return (f"p{number}" for number in itertools.count())


@pytest.mark.timeout(120)
@pytest.mark.parametrize("projection", [balances, statement], ids=lambda p: p.name)
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), actions=ACTIONS)
async def test_live_rows_equal_one_pure_fold(
    projection: Any, make_bank: Any, names: Any, data: st.DataObject, actions: list[Any]
) -> None:
    bank, projected = await make_bank(), renamed(projection, next(names))
    ledger = bank.make_ledger()
    for action in actions:
        ledger.act(*action)
    await bank.store.append(ledger.streams)
    delivered = draw_delivery(data, ledger.streams)
    while delivered:
        size = data.draw(st.integers(1, len(delivered)))
        applied = data.draw(st.integers(0, size))
        await run_until_killed(bank, projected, delivered[:size], applied)
        delivered = delivered[size:]
    await bank.runner(projected).run_until(bank.ends(), timeout_ms=100_000)
    reader = bank.read_models.reader(projected)
    rows = {getattr(row, projected.key): row async for row in reader.rows()}
    assert rows == fold_streams(projection, {}, ledger.streams)
    await bank.transport.aclose()


async def run_until_killed(bank: Any, projected: Any, streams: list[Any], applied: int) -> None:
    """Publishes streams while a runner works that is killed when it has applied some of them."""
    runner = bank.runner(projected)
    stop_at = sum(bank.ends().values()) + applied
    task = asyncio.create_task(runner.run())
    for stream in streams:
        await bank.publish(stream)
    while sum(runner.progress().values()) < stop_at:
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
