"""What is kept of event handlers: versions that never go back, letters that lose nothing."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from headrace.handlers.progress import HandlerProgress
from headrace.projections.tables.read_models import ReadModels
from headrace.transports.base import Incoming

NOW = datetime(2026, 1, 31, tzinfo=UTC)


class Kept:
    """The progress of a processor in a database, a transaction per call."""

    def __init__(self, models: ReadModels, processor: str = "mail") -> None:
        self._models = models
        self._progress = HandlerProgress(processor)

    async def __call__(self, name: str, *arguments: Any, **named: Any) -> Any:
        owner = self._progress if hasattr(self._progress, name) else self._progress.parked
        method = getattr(owner, name)
        return await self._models.transact(
            lambda connection: partial(method, connection)(*arguments, **named)
        )

    async def park(self, aggregate_id: str, version: int = 0, letters_max: int = 9) -> Any:
        message = Incoming(("shop.events", 1), 40 + version, aggregate_id, "", {}, b"")
        return await self(
            "park",
            message=message,
            version=version,
            error=ValueError("no"),
            now=NOW,
            letters_max=letters_max,
        )


@pytest.fixture
async def kept(read_models: ReadModels) -> Kept:
    return Kept(read_models)


async def test_versions_are_stored_and_never_go_back(kept: Kept) -> None:
    assert await kept("read", ["a", "b"]) == ({}, set())
    await kept("advance", {"a": 3, "b": 1})
    await kept("advance", {"a": 2, "b": 2})
    await kept("advance", {})
    assert await kept("read", ["a", "b", "c"]) == ({"a": 3, "b": 2}, set())


async def test_processors_are_independent_of_each_other(
    kept: Kept, read_models: ReadModels
) -> None:
    other = Kept(read_models, "other")
    await kept("advance", {"a": 3})
    await kept.park("b")
    assert await other("read", ["a", "b"]) == ({}, set())
    assert (await other("count"), await kept("count")) == (0, 1)


async def test_a_parked_aggregate_keeps_its_version_and_counts_what_waits(kept: Kept) -> None:
    await kept("advance", {"a": 1})
    assert await kept.park("a", version=2)
    assert await kept.park("a", version=2)
    assert await kept("read", ["a"]) == ({"a": 2}, {"a"})
    letter = await kept("find", "a")
    assert (letter.version, letter.queue, letter.offset) == (2, ("shop.events", 1), 42)
    assert (letter.parked_at, letter.held, letter.retries, letter.error) == (NOW, 2, 0, "no")


async def test_parked_aggregates_have_a_limit(kept: Kept) -> None:
    assert await kept.park("a", letters_max=1)
    assert not await kept.park("b", letters_max=1)
    assert await kept.park("a", letters_max=1)
    assert await kept("read", ["a", "b"]) == ({}, {"a"})
