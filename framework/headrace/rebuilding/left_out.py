"""
Aggregates that a rebuild leaves out, because one of their streams does not decode.

A live reader parks such an aggregate and goes on; its rows stay as the versions before have made them.
So do those of a rebuild: what comes after the stream that does not decode is left out too.

Sits between: what reads the topic and what decodes it. Pure.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from headrace._eventing.seals import aggregate_of
from headrace._runtime.log import get_logger
from headrace.rebuilding.decoding import Decoded, Undecodable
from headrace.rebuilding.topic import Portion
from headrace.transports.base import QueueId

__all__ = ["LEFT_OUT_MAX", "LeftOut"]

# As many as a live projection parks by default before it stands still: more are no accident.
LEFT_OUT_MAX: Final = 1_000
# A message that every decoder passes over: it has no version.
_NOTHING: Final = msgspec.json.encode(
    {
        "aggregate_type": "",
        "aggregate_id": "",
        "version": None,
        "command_id": "",
        "correlation_id": "",
        "recorded_at": "1970-01-01T00:00:00Z",
        "items": {},
        "events": [],
    }
)

_log = get_logger(__name__)


class LeftOut:
    """Remembers aggregates, and from which offset on each is left out."""

    def __init__(self) -> None:
        self._from: dict[str, int] = {}

    @property
    def aggregates(self) -> Mapping[str, int]:
        """The offset from which on each aggregate is left out."""
        return MappingProxyType(self._from)

    def leave_out(self, queue: QueueId, portion: Portion, error: Undecodable) -> Portion | None:
        """Leaves an aggregate out; returns the portion without the message that does not decode.

        None: it says of no aggregate that it is its stream, or there are too many of them.
        """
        place = portion.offsets.index(error.offset)
        aggregate_id = aggregate_of(portion.bodies[place])
        if aggregate_id is None or portion.bodies[place] == _NOTHING:
            return None
        if aggregate_id not in self._from:
            if len(self._from) >= LEFT_OUT_MAX:
                return None
            self._from[aggregate_id] = error.offset
            _log.error(
                "an aggregate is left out, from a stream on that does not decode",
                aggregate_id=aggregate_id,
                queue=f"{queue[0]}/{queue[1]}",
                offset=error.offset,
                error=str(error),
            )
        bodies = list(portion.bodies)
        bodies[place] = _NOTHING
        return Portion(portion.offsets, bodies)

    def without(self, decoded: Decoded) -> Decoded:
        """Returns streams without those of aggregates that are left out, from there on."""
        if not self._from:
            return decoded
        kept = [
            place
            for place, (offset, told) in enumerate(zip(decoded.offsets, decoded.told, strict=True))
            if offset < self._from.get(told[0], offset + 1)
        ]
        if len(kept) == len(decoded.told):
            return decoded
        return Decoded(
            decoded.end,
            [decoded.offsets[place] for place in kept],
            [decoded.told[place] for place in kept],
            [decoded.counts[place] for place in kept],
        )
