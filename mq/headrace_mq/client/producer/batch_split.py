"""
A batch whose queue takes no messages, divided among the queues that do.

Sits between: `reroute`, which says which batch, and the batches of other lanes. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from headrace_mq.client.batch.batch import Batch
from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.producer.route import Route
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns

__all__ = ["spread"]

T = TypeVar("T")


def spread(batch: Batch, route: Route) -> list[Batch]:
    """Returns batches of the queues that the messages belong to by now, each in its order.

    The batch itself is one of them where all go to the same queue; otherwise it is settled with
    them. What they take of the buffer together may differ from what it took.
    """
    columns = batch.open_up()
    keys: Sequence[str] = columns.keys or [""] * batch.count
    places: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(route.choose_by_key(key), []).append(place)
    if len(places) == 1:
        batch.queue = QueueRef(route.topic, next(iter(places)))
        return [batch]
    parts = [
        _part(batch, columns, QueueRef(route.topic, number), chosen)
        for number, chosen in places.items()
    ]
    now: dict[int, tuple[Batch, int]] = {}
    for part, chosen in zip(parts, places.values(), strict=True):
        now |= {place: (part, number) for number, place in enumerate(chosen)}
    batch.scatter([now[place] for place in range(batch.count)])
    return parts


def _part(batch: Batch, columns: Columns, queue: QueueRef, places: Sequence[int]) -> Batch:
    picked = Columns(*(_pick(column, places) for column in columns))
    headers: Sequence[Mapping[str, str]] = picked.headers
    size = MessageColumns(picked.bodies, picked.keys, picked.tags, headers).size
    return batch.derive(queue, picked, size)


def _pick(column: list[T], places: Sequence[int]) -> list[T]:
    return [column[place] for place in places] if column else []
