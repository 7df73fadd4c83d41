"""
Snapshots: the state of an aggregate every so many events, so that loading does not read them all.

The aggregate's worker writes the state down when a stream is decided, because only then is it
known to be of that version; it goes to the store after the stream has been committed, in the
background. A snapshot saves time and nothing else: one that is lost or does not fit is not missed.

Used by the workers and `repository`; uses the event store.
"""

import asyncio
from typing import Any

from headrace._runtime.log import get_logger
from headrace.aggregates.cache import LiveAggregate
from headrace.domain.aggregate import Aggregate
from headrace.domain.state import StateForm
from headrace.stores.base import EventStore, Snapshot

__all__ = ["Snapshots"]

log = get_logger(__name__)

# Snapshots in one transaction: it takes a few milliseconds, and commits wait for it.
_SAVED_TOGETHER_MAX = 50


class Snapshots:
    """Takes and keeps snapshots.

    Args:
        store: keeps them with the events.
        events: how many events of an aggregate lie between two of them; 0 takes and reads none. A class
            may say another number.
        waiting_max: most snapshots on their way into the store; further ones are dropped.
    """

    def __init__(self, *, store: EventStore, events: int, waiting_max: int) -> None:
        self._store = store
        self._events = events
        self._waiting_max = waiting_max
        self._forms: dict[type[Aggregate], StateForm[Any]] = {}
        self._complained: set[type[Aggregate]] = set()
        # The newest of each aggregate, oldest first.
        self._waiting: dict[str, Snapshot] = {}
        self._offered = asyncio.Event()

    def take(self, live: LiveAggregate) -> Snapshot | None:
        """Returns a snapshot of a live aggregate if it is time for one; stores nothing."""
        every = self._every(type(live.aggregate))
        if not every or live.events_unsaved < every:
            return None
        live.events_unsaved = 0
        aggregate = live.aggregate
        try:
            body = self._form(type(aggregate)).capture(aggregate)
        except ValueError as error:
            self._say_once(type(aggregate), error)
            return None
        return Snapshot(
            aggregate_type=type(aggregate).aggregate_name,
            aggregate_id=aggregate.id,
            version=aggregate.version,
            state_version=type(aggregate).state_version,
            body=body,
        )

    def offer(self, snapshot: Snapshot) -> None:
        """Hands over a snapshot whose events are durable, to be stored some time."""
        if len(self._waiting) >= self._waiting_max and snapshot.aggregate_id not in self._waiting:
            log.debug("snapshot dropped", aggregate_id=snapshot.aggregate_id)
            return
        self._waiting[snapshot.aggregate_id] = snapshot
        self._offered.set()

    async def find(self, aggregate_type: type[Aggregate], aggregate_id: str) -> Snapshot | None:
        """Returns the stored snapshot of an aggregate, if the class can have any."""
        if not self._every(aggregate_type) or self._form(aggregate_type).why_not:
            return None
        return await self._store.find_snapshot(aggregate_id)

    def restore(self, aggregate_type: type[Aggregate], snapshot: Snapshot) -> LiveAggregate | None:
        """Returns the aggregate of a snapshot, or None where its class has changed since."""
        if snapshot.state_version != aggregate_type.state_version:
            return None
        form = self._form(aggregate_type)
        aggregate = form.restore(snapshot.aggregate_id, snapshot.version, snapshot.body)
        return None if aggregate is None else LiveAggregate(aggregate)

    async def run(self) -> None:
        """Stores what is offered until cancelled."""
        while True:
            await self._offered.wait()
            ids = list(self._waiting)[:_SAVED_TOGETHER_MAX]
            if not ids:
                self._offered.clear()
                continue
            batch = [self._waiting.pop(aggregate_id) for aggregate_id in ids]
            try:
                await self._store.save_snapshots(batch)
            except Exception as error:  # noqa: BLE001 - adapters may raise anything; the next one comes
                log.warning("snapshots not stored", snapshots=len(batch), error=repr(error))

    def _every(self, aggregate_type: type[Aggregate]) -> int:
        # A state is made of plain values, which would outlive the key.
        if any(each.message_personal for each in aggregate_type.event_types()):
            return 0
        own = aggregate_type.snapshot_events
        return self._events if own is None else own

    def _say_once(self, aggregate_type: type[Aggregate], error: ValueError) -> None:
        if aggregate_type not in self._complained:
            self._complained.add(aggregate_type)
            log.info(
                "an aggregate of this class cannot be written as a snapshot",
                aggregate_type=aggregate_type.aggregate_name,
                why=str(error),
            )

    def _form(self, aggregate_type: type[Aggregate]) -> StateForm[Any]:
        form = self._forms.get(aggregate_type)
        if form is None:
            form = self._forms[aggregate_type] = StateForm(aggregate_type)
        return form
