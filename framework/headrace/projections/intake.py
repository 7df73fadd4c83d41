"""
The intake: sorts what a subscription delivers into messages to apply, repeated ones and missing ones.

The projection's own offsets decide. A message below the stored offset is done already. A message above
it leaves a hole, so the intake asks for the hole once more. If it is delivered with the same hole, the
queue has lost those messages (a broken record), and the projection continues behind them. The version gate
finds the missing events as soon as the aggregate's next version comes.

`pause_s` says how long the live runner waits after a small batch, so that one transaction serves the
events that come meanwhile.

Used by the live runner, with what `Subscription.poll` returns. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from headrace.transports.base import Incoming, QueueId

__all__ = ["BATCH_INTERVAL_MS", "Admission", "Intake", "is_small", "pause_s"]

# A small batch begins at the earliest this long after the last one. Then one transaction and its flush
# serve all events that came meanwhile. No person notices such a pause, and an event after a silence does
# not wait at all.
BATCH_INTERVAL_MS: Final = 8
# A batch of so many messages is not small: its transaction costs little compared with them.
_SMALL_MAX: Final = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What to do with the messages of one poll.

    Attributes:
        take: the next ones of their queues, in order.
        done: handled before; only to be acknowledged.
        again: the offset to seek per queue, because messages before the delivered ones are missing.
        lost: per queue the first and last offset of a hole that asking again did not fill.
    """

    take: list[Incoming] = field(default_factory=list)
    done: list[Incoming] = field(default_factory=list)
    again: dict[QueueId, int] = field(default_factory=dict)
    lost: list[tuple[QueueId, int, int]] = field(default_factory=list)


class Intake:
    """Remembers, per queue, the offset that was asked for again."""

    def __init__(self) -> None:
        self._asked: dict[QueueId, int] = {}

    def admit(
        self, messages: Sequence[Incoming], positions: Mapping[QueueId, int | None]
    ) -> Admission:
        """Sorts the messages of one poll.

        Args:
            messages: in offset order within each queue.
            positions: the next offset to apply per queue; None or left out: any offset begins.
        """
        admission = Admission()
        expected = dict(positions)
        for message in messages:
            if message.queue in admission.again:
                continue
            offset = expected.get(message.queue)
            if offset is not None and message.offset < offset:
                admission.done.append(message)
                continue
            if offset is not None and message.offset > offset:
                if self._asked.get(message.queue) != offset:
                    self._asked[message.queue] = offset
                    admission.again[message.queue] = offset
                    continue
                admission.lost.append((message.queue, offset, message.offset - 1))
            self._asked.pop(message.queue, None)
            expected[message.queue] = message.offset + 1
            admission.take.append(message)
        return admission


def is_small(messages: int, batch_max: int) -> bool:
    """Whether a batch is worth waiting after, where `batch_max` messages are as many as there can be."""
    return messages < min(_SMALL_MAX, batch_max)


def pause_s(took_s: float, interval_ms: int) -> float:
    """Returns the seconds from the end of a small batch, which took so long, to the next one's begin.

    None after one that took long: messages have gathered meanwhile, and are late already.
    """
    return max(0.0, interval_ms / 1_000 - took_s)
