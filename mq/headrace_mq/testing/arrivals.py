"""
Waits in tests instead of sleeping: until records have arrived, until a group is done.

Used by your tests; the broker may be simulated or real.
"""

import asyncio
from collections.abc import Sequence

from headrace_mq.admin.client import AdminClient
from headrace_mq.client.consumer.consumer import Consumer
from headrace_mq.message import QueueRef, Record

__all__ = ["caught_up", "take"]

# A test that waits longer than this has failed.
TIMEOUT_MS = 10_000
# How often offsets are asked for; commits come once a second by default.
LOOK_MS = 20


async def take(consumer: Consumer, count: int, *, timeout_ms: int = TIMEOUT_MS) -> list[Record]:
    """Polls until at least `count` records came, acknowledges and commits them, and returns them.

    Raises:
        TimeoutError: fewer came in time; the sentence says how many.
    """
    records: list[Record] = []
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            while len(records) < count:
                records += await consumer.poll()
    except TimeoutError as error:
        raise TimeoutError(
            f"{len(records)} of {count} records came within {timeout_ms} ms"
        ) from error
    for record in records:
        consumer.ack(record)
    await consumer.commit()
    return records


async def caught_up(
    address: str, group: str, topics: Sequence[str], *, timeout_ms: int = TIMEOUT_MS
) -> None:
    """Waits until a group has committed everything that its topics hold.

    Raises:
        TimeoutError: it has not in time; the sentence says what is left.
    """
    left: dict[QueueRef, int] = {}
    async with AdminClient(address) as admin:
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                # The broker announces no commits.
                while left := await _left(admin, group, topics):  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(LOOK_MS / 1_000)
        except TimeoutError as error:
            raise TimeoutError(
                f"group {group!r} has {sum(left.values())} messages left in {sorted(left)} after"
                f" {timeout_ms} ms"
            ) from error


async def _left(admin: AdminClient, group: str, topics: Sequence[str]) -> dict[QueueRef, int]:
    offsets = await admin.offsets(group, topics)
    left: dict[QueueRef, int] = {}
    for held in await admin.ranges(topics):
        queue = QueueRef(held.topic, held.queue_id)
        behind = held.end - max(offsets[queue], held.first)
        if behind > 0:
            left[queue] = behind
    return left
