"""The suite is worth something only if it catches an adapter that breaks a promise."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome, StoredStream
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.event_store import EventStoreConformance

APPENDED = AppendOutcome.APPENDED
DUPLICATE = AppendOutcome.DUPLICATE_COMMAND
CONFLICT = AppendOutcome.VERSION_CONFLICT


class AllowsHoles(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        outcomes = await super().append(streams)
        for place, (each, outcome) in enumerate(zip(streams, outcomes, strict=True)):
            head = len(await self.read_stream(each.aggregate_id))
            if outcome is CONFLICT and each.version is not None and each.version > head + 1:
                self._keep(each)
                outcomes[place] = APPENDED
        return outcomes


class ForgetsTheChain(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        return [(await super(ForgetsTheChain, self).append([each]))[0] for each in streams]


class AnswersConflictForDuplicates(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        outcomes = await super().append(streams)
        return [CONFLICT if outcome is DUPLICATE else outcome for outcome in outcomes]


class ForgetsRejections(MemoryEventStore):
    def _keep(self, stream: EventStream) -> None:
        if stream.rejection is None:
            super()._keep(stream)


class RefusesTheGroupWhole(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        trial = MemoryEventStore()
        for stored in await self.read_all():
            trial._keep(stored.stream)
        outcomes = await trial.append(streams)
        if set(outcomes) <= {APPENDED}:
            return await super().append(streams)
        return [CONFLICT if outcome is APPENDED else outcome for outcome in outcomes]


class GivesWayInTheMiddle(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        known = {(stored.stream.aggregate_id, stored.stream.version) for stored in self._log}
        await asyncio.sleep(0)
        return [
            CONFLICT if (each.aggregate_id, each.version) in known else self._store(each)
            for each in streams
        ]

    def _store(self, stream: EventStream) -> AppendOutcome:
        self._keep(stream)
        return APPENDED


class IgnoresCase(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        return await super().append(
            [replace(each, aggregate_id=each.aggregate_id.lower()) for each in streams]
        )


class CutsLongTexts(MemoryEventStore):
    async def append(self, streams: Sequence[EventStream]) -> list[AppendOutcome]:
        return await super().append(
            [replace(each, aggregate_id=each.aggregate_id[:127]) for each in streams]
        )


class SkipsRejectionsInReadAll(MemoryEventStore):
    async def read_all(self, *, after_position: int = 0, limit: int = 1_000) -> list[StoredStream]:
        found = await super().read_all(after_position=after_position, limit=limit)
        return [stored for stored in found if stored.stream.rejection is None]


class IgnoresTheLimit(MemoryEventStore):
    async def read_all(self, *, after_position: int = 0, limit: int = 1_000) -> list[StoredStream]:
        return await super().read_all(after_position=after_position, limit=10**9)


BROKEN = [
    AllowsHoles,
    ForgetsTheChain,
    AnswersConflictForDuplicates,
    ForgetsRejections,
    RefusesTheGroupWhole,
    GivesWayInTheMiddle,
    IgnoresCase,
    CutsLongTexts,
    SkipsRejectionsInReadAll,
    IgnoresTheLimit,
]


def _cases() -> list[Callable[..., Awaitable[None]]]:
    suite: Any = EventStoreConformance()
    return [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]


async def _failures(adapter: type[MemoryEventStore]) -> list[str]:
    failed = []
    for case in _cases():
        store = adapter()
        fixtures = {"store": store, "twin": store}
        arguments = {name: fixtures[name] for name in inspect.signature(case).parameters}
        try:
            await case(**arguments)
        except AssertionError:
            failed.append(case.__name__)
    return failed


async def test_the_reference_adapter_passes() -> None:
    assert await _failures(MemoryEventStore) == []


@pytest.mark.parametrize("adapter", BROKEN)
async def test_a_broken_adapter_is_caught(adapter: type[MemoryEventStore]) -> None:
    assert await _failures(adapter) != []


def test_every_case_states_its_claim() -> None:
    assert len(_cases()) > 35
    assert all(inspect.getdoc(case) for case in _cases())
