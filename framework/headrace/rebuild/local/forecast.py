"""
What a rebuild would read and put in place, and how long it would take, before anything is written.

    where each queue begins and ends ─▶ the first messages, decoded and folded in memory ─▶ the rest is
    as fast and as large, so far as that tells

Used by the command line; uses what a rebuild in this process reads and folds with. It writes nothing.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace._runtime.clock import Clock, SystemClock
from headrace.app import App
from headrace.projections.definition.projection import Projection
from headrace.projections.tables import generations
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.decode import Decoder
from headrace.rebuild.left_out import LeftOut
from headrace.rebuild.local.memory import remember
from headrace.rebuild.local.moment import Moment, ranges_before
from headrace.rebuild.local.rows_in_memory import take_filling
from headrace.rebuild.source import Opened
from headrace.rebuild.stored_events import STORE
from headrace.transports.base import QueueId

__all__ = ["Forecast", "forecast"]

# Messages that are folded to see how fast that is, and of how many at a time.
_SAMPLED_MAX: Final = 5_000
_PIECE_MAX: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a rebuild of a projection would do.

    Attributes:
        projection: its name.
        messages: how many it would read, by `topic/queue`; of the store positions, the first of which is 1.
        sampled: messages that were folded to see how fast that is.
        sampled_bytes: their size.
        sampled_seconds: how long it took to read, decode and fold them in this process.
        generation: the live one.
        version: of the definition that this was built by.
        code_version: of the definition that would build the new rows.
        rows: live ones.
        comparable: whether the new rows would be compared with them.
        running: who is rebuilding it now, and keeps the next one out; empty: no rebuild is under way.
    """

    projection: str
    messages: dict[str, int]
    sampled: int
    sampled_bytes: int
    sampled_seconds: float
    generation: int
    version: int
    code_version: int
    rows: int
    comparable: bool
    running: str

    @property
    def bytes(self) -> int:
        """About how much it would read."""
        return round(sum(self.messages.values()) * self.sampled_bytes / max(self.sampled, 1))

    @property
    def seconds(self) -> float:
        """About how long reading and folding would take here; rows are written besides."""
        return sum(self.messages.values()) * self.sampled_seconds / max(self.sampled, 1)

    def to_json(self) -> str:
        """Returns it as one line of JSON, with `bytes` and `seconds`."""
        told = {"bytes": self.bytes, "seconds": round(self.seconds, 3)}
        return msgspec.json.encode({**msgspec.to_builtins(self), **told}).decode()


async def forecast(
    application: App,
    projection: Projection[Any],
    found: Opened,
    read_models: ReadModels,
    *,
    onto_live: bool = False,
    as_of: Moment | None = None,
    clock: Clock | None = None,
) -> Forecast:
    """Looks what a rebuild in this process would do.

    Args:
        application: whose events.
        projection: one of its projections.
        found: what would be folded, opened.
        read_models: where the live rows are.
        onto_live: only what came since would be folded, onto a copy of the live rows.
        as_of: only what came before a moment would.
        clock: measures.

    Raises:
        ProjectionNotFound: the projection was never set up.
        ProjectionError: the events cannot be read or folded.
    """
    state = await read_models.state(projection.name)
    held: Mapping[QueueId, tuple[int, int]] = await found.events.ranges()
    if as_of is not None and found.topic is not None:
        held = await ranges_before(found.topic, as_of, held)
    stands = await read_models.offsets(projection.name, state.generation) if onto_live else {}
    sampled = await _sample(application, projection, found, read_models, held, clock)
    owner = state.rebuild_owner
    lives = owner is not None and await read_models.locks.is_held(owner)
    return Forecast(
        projection=projection.name,
        messages={
            f"{queue[0]}/{queue[1]}": end - max(first, stands.get(queue, 0), int(queue == STORE))
            for queue, (first, end) in held.items()
        },
        sampled=sampled[0],
        sampled_bytes=sampled[1],
        sampled_seconds=sampled[2],
        generation=state.generation,
        version=state.version,
        code_version=projection.version,
        rows=await read_models.reader(projection, generation=state.generation).count(),
        comparable=projection.has_columns_of(state.fingerprint) and as_of is None,
        running=str(generations.running(state)) if lives else "",
    )


async def _sample(
    application: App,
    projection: Projection[Any],
    found: Opened,
    read_models: ReadModels,
    held: Mapping[QueueId, tuple[int, int]],
    clock: Clock | None,
) -> tuple[int, int, float]:
    """Folds the first messages of the longest queue; returns how many, their bytes, and seconds."""
    if not held:
        return 0, 0, 0.0
    queue, (first, end) = max(held.items(), key=lambda each: each[1][1] - each[1][0])
    end = min(end, first + _SAMPLED_MAX)
    memory, target = remember(projection), read_models.target(projection, 0)
    serializer = application.serializer_at(found.event_store)
    decoder, left_out = Decoder(serializer, projection.reacts_to), LeftOut()
    messages = size = 0
    now_ms = (clock or SystemClock()).monotonic_ms
    began_ms = now_ms()
    async with aclosing(found.events.bodies(queue, first, end)) as portions:
        async for portion in portions:
            for piece in portion.pieces(_PIECE_MAX):
                decoded = left_out.decode(decoder, queue, piece, first)
                await take_filling(memory, decoded.told, target, found.means.missing)
                memory.fold()
                messages += len(piece.bodies)
                size += sum(map(len, piece.bodies))
    return messages, size, (now_ms() - began_ms) / 1_000
