"""Batches that no reader can decode, and bodies that are nobody's, in every queue of an application.

They stand there as a broker of before took them. Commands, projections, process managers, rebuilds and
comparisons go on, and the application tells of it.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.rebuild.local.rebuild import rebuild
from headrace.settings import Settings
from headrace_mq.broker.server import Broker
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message, QueueRef
from headrace_mq.settings import BrokerSettings, StoreSettings
from headrace_mq.testing.hostile import hostile_batches

pytestmark = pytest.mark.timeout(400)

# Of each kind of damage to a payload one: none of text, of columns, of a codec, of entries.
KINDS = ("no msgpack", "columns differ", "unknown codec", "numbers for keys")
JUNK = [b"", b"junk", b"{}", b"[" * 100_000]


@pytest.fixture
async def spoil(tmp_path: Path) -> Any:
    """A broker, and a function that puts damage into every queue of an application."""
    store = StoreSettings(directory=tmp_path / "mq", segment_bytes=8 << 20)
    broker = Broker(BrokerSettings(store=store, port=0))
    await broker.start()

    async def run(name: str) -> None:
        state = broker._state
        assert state is not None
        async with Producer(broker.address) as producer:
            messages = [
                Message(topic=f"{name}.events", key=key, body=body)
                for body in JUNK
                for key in ("a0", "c", "", "b", "d", "e")
            ]
            await producer.send_many(messages)
        for topic in (f"{name}.commands", f"{name}.events"):
            described = state.topics.find(topic)
            assert described is not None
            for number in range(described.queues):
                queue = QueueRef(topic, number)
                retention = state.topics.for_append(queue)
                for kind in KINDS:
                    batch = bytearray(hostile_batches(queue)[kind])
                    state.store.append(batch, retention=retention)
        await state.store.durable()

    run.address = broker.address  # type: ignore[attr-defined]  # beside what the test calls
    yield run
    await broker.aclose()


async def test_an_application_goes_on_behind_damage_and_its_read_models_are_rebuilt(
    world: Any, spoil: Any, read_history: Callable[..., Any], settled: Any, tmp_path: Path
) -> None:
    app = world.app
    settings = Settings(
        broker=spoil.address,
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=f"sqlite:///{tmp_path / 'read.db'}",
        alarm_check_ms=100,
        command_queues=2,
        event_queues=2,
    )
    async with app.run(settings) as running:
        await world.begin(running.bus)
        await spoil(app.name)
        await world.go_on(running.bus)
        # Nothing comes behind this: who waits for the end of a queue has to get there all the same.
        await spoil(app.name)
        await settled(app, settings)
        history = await read_history(app, settings)
        assert history.faults() == []
        assert history.happened == world.expected
        # What the topic lacked, if anything, is there again: that alarm is over.
        while f"{app.name}.events" in running.lineage.damaged():
            await running.lineage.look()
        await running.watch.alarms.look()
        # Junk that does decode as messages is foreign to the event store: an alarm of its own.
        current = running.watch.alarms.current
        alarms = {one.projection: one for one in current if one.kind != "foreign messages"}
        assert alarms.keys() == {f"topic:{app.name}.commands"}
        assert all(one.kind == "messages left out" for one in alarms.values())
        for name in app.projections:
            path = f"samples.{app.name}:app"
            done = await rebuild(
                path,
                name,
                broker=spoil.address,
                read_models_url=settings.read_models,
                event_store_url=settings.event_store,
            )
            assert (done.switched, done.reason) == (True, "")
