"""What a process manager has parked: how far it is, how many wait, and which rejections."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from headrace.processes.progress import (
    ProcessProgress,
    is_rejection,
    version_before,
)
from headrace.transports.base import Incoming

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def event(version: object, aggregate_id: str = "a") -> Incoming:
    headers = {"kind": "events", "version": str(version)}
    return Incoming(("shop.events", 0), 7, aggregate_id, "", headers, b"")


def rejection(command_id: str) -> Incoming:
    headers = {"kind": "rejection", "version": "", "command": command_id}
    return Incoming(("shop.events", 0), 8, "a", "", headers, b"")


@pytest.fixture
def kept(read_models: Any) -> Any:
    """Calls a method, a transaction per call."""
    progress = ProcessProgress("copying")

    async def call(method: str, *arguments: Any, **named: Any) -> Any:
        return await read_models.transact(
            lambda connection: getattr(
                progress if hasattr(progress, method) else progress.parked, method
            )(connection, *arguments, **named)
        )

    return call


@pytest.fixture
def park(kept: Any) -> Any:
    return partial(kept, "park_at", error=ValueError("no"), now=NOW, letters_max=1)


def test_a_messages_header_gives_the_version_before_it_or_0() -> None:
    assert version_before(event(5)) == 4
    assert [version_before(event(each)) for each in ("", "0", "-3", "x", "²")] == [0] * 5
    assert is_rejection(rejection("c"))
    assert not is_rejection(event(5))


async def test_an_aggregate_is_parked_once_and_its_later_events_wait(kept: Any, park: Any) -> None:
    assert not await kept("keep", event(5))
    assert await park(message=event(5), version=4)
    assert await kept("among", {"a", "b"}) == {"a"}
    assert await kept("keep", event(6))
    assert await park(message=event(6), version=5)  # delivered twice
    letter = await kept("find", "a")
    assert (letter.version, letter.held, letter.error) == (4, 3, "no")
    assert "ValueError: no" in letter.traceback
    assert not await park(message=event(1, "b"), version=0)
    assert await kept("waiting", "a") == (4, [])
    await kept("advance", {"a": 5, "nobody": 9})
    assert await kept("waiting", "a") == (5, [])
    assert await kept("keep", event(3))  # late
    assert await kept("waiting", "a") == (2, [])
    assert await kept("find", "b") is None


async def test_rejections_wait_in_order_each_once_and_events_behind_them_by_version(
    kept: Any, park: Any
) -> None:
    for command_id in ("c-1", "c-2", "c-1"):
        assert await park(message=rejection(command_id), version=None)
    assert await kept("waiting", "a") == (None, [(1, "c-1"), (2, "c-2")])
    assert await kept("keep", event(9))
    assert await kept("keep", event(10))
    assert await kept("waiting", "a") == (8, [(1, "c-1"), (2, "c-2")])
    await kept("forget", "a", 1)
    assert await kept("waiting", "a") == (8, [(2, "c-2")])
