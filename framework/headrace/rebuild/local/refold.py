"""
The events of some keys folded in this process, from the first one to where the live rows stand.

Used by `rebuild`, which knows the keys; reads the event topic. It must not know a database.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

from headrace.errors import ProjectionError
from headrace.projections.batch_transaction import MissingReader
from headrace.projections.definition.row_subset import narrowed
from headrace.projections.tables.contents import Target
from headrace.rebuild.decode import Decoder
from headrace.rebuild.event_topic import EventTopic
from headrace.rebuild.left_out import LeftOut
from headrace.rebuild.local.memory import remember
from headrace.rebuild.local.partial_rebuild import Refolded
from headrace.rebuild.local.rows_in_memory import take_filling
from headrace.serialization import JsonSerializer
from headrace.transports.base import QueueId

__all__ = ["refold"]

# Messages that are decoded and then folded, as in a rebuild of everything.
_PIECE_MAX: Final = 100


async def refold(
    topic: EventTopic,
    target: Target[Any],
    serializer: JsonSerializer,
    missing: MissingReader,
    *,
    keys: frozenset[str],
    ends: Mapping[QueueId, int],
) -> Refolded:
    """Folds the events of keys up to offsets, exclusive; of other keys it makes nothing.

    An aggregate with a stream that does not decode is left out from there on.

    Args:
        topic: where the events are.
        target: whose folds run.
        serializer: knows the event types.
        missing: reads streams that the topic lacks.
        keys: of the rows.
        ends: per queue.

    Raises:
        ProjectionError: the topic does not hold all of it, or an event cannot be folded.
    """
    narrow = replace(target, projection=narrowed(target.projection, keys))
    # Where a row has events of its own aggregate alone, the others need not be decoded.
    only = keys if narrow.projection.keyed_by_aggregate else None
    memory, decoder = remember(narrow.projection), Decoder(serializer, narrow.projection.reacts_to)
    counts: Counter[str] = Counter()
    left_out = LeftOut()
    await _check_held(topic, target, ends)
    for queue, end in ends.items():
        async with aclosing(topic.bodies(queue, 0, end, keys=only)) as portions:
            async for portion in portions:
                for piece in portion.pieces(_PIECE_MAX):
                    decoded = left_out.decode(decoder, queue, piece, 0)
                    taken = await take_filling(memory, decoded.told, narrow, missing)
                    memory.fold()
                    counts += taken.counts(decoded.counts)
    versions, rows = memory.take_changes()
    return Refolded(rows=rows, versions=versions, counts=counts, left_out=left_out.reasons)


async def _check_held(topic: EventTopic, target: Target[Any], ends: Mapping[QueueId, int]) -> None:
    held, starts = await topic.ranges(), await topic.starts()
    for queue, end in ends.items():
        first, last = held.get(queue, (0, 0))
        if first > starts.get(queue, 0) or end > last:
            raise ProjectionError(
                f"projection {target.projection.name}: {queue[0]}/{queue[1]} holds offsets {first}"
                f" to {last}, but rebuilding single rows needs every offset before {end}; rebuild all rows,"
                " with --from-export DIR or --from store"
            )
