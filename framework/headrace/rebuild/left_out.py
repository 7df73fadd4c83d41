"""
Aggregates that a rebuild leaves out, because one of their streams does not decode.

A live reader parks such an aggregate and goes on; its rows stay as the versions before have made them.
So do those of a rebuild: what comes after the stream that does not decode is left out too.

It is remembered from the fold to the end of catching up, with each engine. Used by the readers of
the topic and the event store, and by the decoders. Pure.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from headrace._runtime.log import get_logger
from headrace.domain.stream_body import aggregate_of
from headrace.rebuild.decode import Decoded, Decoder, Undecodable
from headrace.rebuild.event_topic import Portion
from headrace.transports.base import Incoming, QueueId

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
        self._sentences: dict[str, str] = {}

    @property
    def sentences(self) -> tuple[str, ...]:
        """Of each aggregate what is the matter with it."""
        return tuple(self._sentences.values())

    @property
    def reasons(self) -> Mapping[str, str]:
        """What is the matter with each aggregate."""
        return MappingProxyType(self._sentences)

    def note(self, aggregate_id: str, queue: QueueId, offset: int, sentence: str) -> bool:
        """Leaves an aggregate out from an offset on; False: there are too many of them."""
        before = self._from.get(aggregate_id)
        if before is None and len(self._from) >= LEFT_OUT_MAX:
            return False
        if before is None or offset < before:
            self._from[aggregate_id] = offset
            self._sentences[aggregate_id] = sentence
            _log.error(
                "an aggregate is left out, from a stream on that does not decode",
                aggregate_id=aggregate_id,
                queue=f"{queue[0]}/{queue[1]}",
                offset=offset,
                error=sentence,
            )
        return True

    def pass_over(self, messages: Sequence[Incoming]) -> Sequence[Incoming]:
        """Returns messages, those of aggregates that are left out as ones that hold no events."""
        if not self._from:
            return messages
        return [
            each._replace(headers={"kind": "rejection"})
            if each.offset >= self._from.get(each.key, each.offset + 1)
            else each
            for each in messages
        ]

    @property
    def aggregates(self) -> Mapping[str, int]:
        """The offset from which on each aggregate is left out."""
        return MappingProxyType(self._from)

    def decode(self, decoder: Decoder, queue: QueueId, portion: Portion, start: int) -> Decoded:
        """Decodes a portion from an offset on, without aggregates that are left out.

        Raises:
            Undecodable: there are too many of them, or it is not known whose a stream is.
        """
        while True:
            try:
                return self.without(decoder.decode(queue, portion, start))
            except Undecodable as error:
                rest = self.leave_out(queue, portion, error)
                if rest is None:
                    raise
                portion = rest

    def leave_out(self, queue: QueueId, portion: Portion, error: Undecodable) -> Portion | None:
        """Leaves an aggregate out; returns the portion without the message that does not decode.

        None: it says of no aggregate that it is its stream, or there are too many of them.
        """
        place = portion.offsets.index(error.offset)
        aggregate_id = aggregate_of(portion.bodies[place])
        if aggregate_id is None or portion.bodies[place] == _NOTHING:
            return None
        if not self.note(aggregate_id, queue, error.offset, str(error)):
            return None
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
