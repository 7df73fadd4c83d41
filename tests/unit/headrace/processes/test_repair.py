"""Repair by a key: of an instance, of an aggregate, or of both."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from headrace.errors import InstanceNotFound
from headrace.processes.instances import take
from headrace.processes.process_manager import ProcessManager
from headrace.processes.progress import ProcessStandings
from headrace.processes.repair import Repair
from headrace.transports.base import Incoming

NOW = datetime(2026, 1, 31, tzinfo=UTC)


@pytest.fixture
def make_repair(sqlite_models: Any, store: Any, serializer: Any) -> Any:
    return lambda manager, bus=None: Repair(manager, bus, sqlite_models, store, serializer)


@pytest.fixture
def park(sqlite_models: Any, store: Any, serializer: Any, make_process: Any, domain: Any) -> Any:
    """Parks the instance "a" of copies, whose first event it refuses, and the aggregate "a"."""

    async def run(*, instance: bool, aggregate: bool) -> None:
        store.streams = [domain.stream("a", 1), domain.stream("a", 2)]
        if instance:
            await sqlite_models.transact(
                partial(
                    take,
                    process=make_process(refuses=[1]),
                    streams=store.streams[:1],
                    serializer=serializer,
                    now=NOW,
                    park=True,
                )
            )
        if aggregate:
            await sqlite_models.transact(
                partial(
                    ProcessStandings("copies").park_at,
                    message=Incoming(("shop.events", 0), 0, "a", "", {"kind": "events"}, b""),
                    version=1,
                    error=ValueError("no key"),
                    now=NOW,
                    letters_max=9,
                )
            )

    return run


async def test_an_instance_and_an_aggregate_of_one_key_are_both_taken_up(
    make_repair: Any, make_process: Any, park: Any
) -> None:
    await park(instance=True, aggregate=True)
    repair = make_repair(make_process(refuses=[1]))
    assert "1 is not bearable" in await repair.retry("a")
    repair = make_repair(make_process())
    assert await repair.retry("a") is None
    with pytest.raises(InstanceNotFound, match="neither an instance nor an aggregate 'a'"):
        await repair.retry("a")


async def test_one_event_is_skipped_the_instance_first(
    make_repair: Any, make_process: Any, park: Any
) -> None:
    await park(instance=True, aggregate=True)
    repair = make_repair(make_process(refuses=[1]))
    assert await repair.skip("a") is None
    assert await repair.skip("a") is None
    with pytest.raises(InstanceNotFound):
        await repair.skip("a")


async def test_a_process_manager_without_a_state_has_aggregates_alone(
    make_repair: Any, park: Any, domain: Any
) -> None:
    manager = ProcessManager("copies")

    @manager.on
    def added(event: domain.Added, context: Any) -> Any:
        raise ValueError("not yet")

    class Bus:
        async def send_envelope(self, envelope: Any) -> None:
            raise AssertionError

    repair = make_repair(manager, Bus())
    with pytest.raises(InstanceNotFound):
        await repair.retry("a")
    await park(instance=False, aggregate=True)
    assert "not yet" in await repair.retry("a")
    assert await repair.skip("a") is None
