"""
Each version of an aggregate once and in order, over all micro-batches of a stream.

    streams of one aggregate, of a micro-batch ─┐
    state: last version, what waits for a gap  ─┴─▶ the next versions ─▶ typed events
                                                        └─▶ state: last version, what waits now

What an executor does for `events`, which makes the query. Spark keeps the state in the query's checkpoint and
changes it with the micro-batch, so what a killed query did not finish comes again, to the state from before.
It must not know a session.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

import msgspec
import pyarrow as pa

from headrace.domain.stream_body import body_reader
from headrace.errors import ProjectionError
from headrace.serialization import JsonSerializer
from headrace.spark.executor.doubts import StoreGaps
from headrace.spark.executor.event_reader import Reading, TypedSlice, open_reading
from headrace.spark.executor.fold import Batches, EventPlace, TopicMessage
from headrace.spark.executor.gate import MissingVersions
from headrace.spark.executor.plan import FoldPlan, load_application

__all__ = [
    "HELD_MAX",
    "PASSED_SCHEMA",
    "STATE_SCHEMA",
    "Waiting",
    "gate_versions",
    "next_streams",
    "type_passed",
]

# Streams of one aggregate that wait for an earlier version, in the state: enough for a producer that published
# out of order, and no more than some megabytes.
HELD_MAX: Final = 1_000

STATE_SCHEMA: Final = "version bigint, held binary"
PASSED_SCHEMA: Final = "key string, moment bigint, queue int, offset bigint, data binary"

# Moment, queue, offset and body of a stream, by its version.
Waiting = dict[int, tuple[int, int, int, bytes]]
_read_version = body_reader("version")


def next_streams(
    version: int, waiting: Waiting, lacking: Callable[[int, int], Mapping[int, bytes]]
) -> tuple[int, list[tuple[int, int, int, bytes]]]:
    """Takes out of what waits the streams that may pass, in version order; pure but for what it is given.

    Args:
        version: the last one that has passed.
        waiting: streams that have not passed; those that have, or pass now, are taken out.
        lacking: given two versions, returns the bodies that the event store has between them.

    Returns:
        The last version now, and what passes.
    """
    for old in [each for each in waiting if each <= version]:
        del waiting[old]
    passed: list[tuple[int, int, int, bytes]] = []
    while waiting:
        first = min(waiting)
        if first > version + 1:
            found = lacking(version, first - 1)
            if sorted(found) != list(range(version + 1, first)):
                break
            moment, queue, offset, _ = waiting[first]
            passed += ((moment, queue, offset, found[each]) for each in sorted(found))
        passed.append(waiting.pop(first))
        version = first
    return version, passed


def gate_versions(plan: FoldPlan, key: str, frames: Iterable[Any], state: Any) -> Iterator[Any]:
    """Yields the streams of one aggregate that may pass, and keeps the others in Spark's state.

    Args:
        plan: where the application and the event store are.
        key: the aggregate's id.
        frames: its streams in a micro-batch, as data frames of pandas, which is what Spark hands over.
        state: Spark's, of this key.

    Raises:
        ProjectionError: a stream does not decode, or too many wait for a version that is nowhere.
    """
    version, held = state.get if state.exists else (0, b"")
    waiting: Waiting = msgspec.msgpack.decode(held, type=Waiting) if held else {}
    for frame in frames:
        columns = (frame[name].tolist() for name in ("moment", "queue", "offset", "data"))
        for moment, queue, offset, data in zip(*columns, strict=True):
            # Of what stands twice the first is kept.
            waiting.setdefault(
                _version_of(key, queue, offset, data), (moment, queue, offset, bytes(data))
            )
    serializer = load_application(plan.app, plan.folder).serializer_at(plan.event_store)
    with closing(StoreGaps(plan.event_store, serializer)) as store:
        version, passed = next_streams(version, waiting, _in_store(store, serializer, key))
    if len(waiting) > HELD_MAX:
        raise ProjectionError(
            f"aggregate {key} lacks version {version + 1}, which neither the topic nor"
            f" {plan.event_store or 'an event store (none was given)'} has, and more than {HELD_MAX:,}"
            " streams wait for it; give read_event_stream the event store that has it"
        )
    state.update((version, msgspec.msgpack.encode(waiting) if waiting else b""))
    if passed:
        made = zip(*passed, strict=True)
        columns_out = dict(zip(("moment", "queue", "offset", "data"), made, strict=True))
        yield pa.table({"key": [key] * len(passed), **columns_out}).to_pandas()


def type_passed(plan: FoldPlan, reading: Reading, batches: Batches) -> Batches:
    """Yields the events of streams that have passed, as `event_reader.read_typed` yields them.

    Raises:
        ProjectionError: a stream does not decode, or has an event that the application does not know.
    """
    with closing(open_reading(plan, reading)) as typing:
        typed = _PassedStreams(reading, typing.decoder, typing.places, 0, typing.find)
        for batch in batches:
            columns = (
                batch[name].to_pylist() for name in ("key", "moment", "queue", "offset", "data")
            )
            for key, moment, queue, offset, data in zip(*columns, strict=True):
                place = EventPlace(moment, queue, offset)
                typed.take(plan.slices[0].queue.topic, [TopicMessage(place, key, data)])
            yield from typed.flush()


class _Open:
    """A gate behind a gate: everything passes."""

    def admit(self, streams: Iterable[Any]) -> list[Any]:
        return list(streams)


class _PassedStreams(TypedSlice):
    """The events of streams that need no gate any more."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._gate = _Open()


def _version_of(key: str, queue: int, offset: int, data: bytes) -> int:
    try:
        version = _read_version(data).version
    except ValueError as error:
        raise ProjectionError(
            f"the event message at queue {queue} offset {offset} (aggregate {key}) does not decode:"
            f" {error}"
        ) from error
    assert isinstance(version, int), "rejections were left out"
    return version


def _in_store(
    store: StoreGaps, serializer: JsonSerializer, key: str
) -> Callable[[int, int], Mapping[int, bytes]]:
    def find(after: int, to: int) -> Mapping[int, bytes]:
        found = store([MissingVersions(key, after, to)])
        return {each.version: serializer.encode_stream(each) for each in found if each.version}

    return find
