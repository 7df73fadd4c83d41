"""
What a consumer could not read: counted, logged, and reported to the application.

    a batch whose payload no reader can decode          ─┐
    offsets that the broker left out as damaged, or   ├─▶ DamageLog ─▶ log, counts, listeners
    that are missing for any other reason            ─┘

Used by `fetcher`, which finds damage, and by applications that listen. Pure but for the log.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace_mq._runtime.log import get_logger
from headrace_mq.message import QueueRef, Record

__all__ = ["DAMAGE_HEADER", "FIRST_HEADER", "DamageLog", "Damaged", "is_marker", "marker_of"]

# Of a marker: why the messages up to its offset are not there.
DAMAGE_HEADER = "%damage"
# Of a marker: the offset of the first of them.
FIRST_HEADER = "%first"

_log = get_logger(__name__)


class Damaged(NamedTuple):
    """Messages that cannot be read.

    Attributes:
        queue: the queue they are in, or were in.
        first: the offset of the first of them.
        next: the offset after the last of them; reading goes on there.
        reason: what is wrong, one sentence.
    """

    queue: QueueRef
    first: int
    next: int
    reason: str

    @property
    def messages(self) -> int:
        """How many they are."""
        return self.next - self.first

    @property
    def sentence(self) -> str:
        """Which messages cannot be read, and why."""
        last = self.next - 1
        return f"the messages from offset {self.first} to {last} cannot be read: {self.reason}"


class DamageLog:
    """Everything that one consumer has left out since its start.

    Attributes:
        batches: how often it met such messages.
        marks: deliver one record with `DAMAGE_HEADER`, `FIRST_HEADER` and no body in place of messages
            that cannot be read, at the last of their offsets. For applications that keep their own
            offsets, which otherwise stay before such messages until another one comes, and for
            applications that must act before they go on.
    """

    def __init__(self) -> None:
        self.batches = 0
        self._messages: dict[str, int] = {}
        self.marks = False
        self._listeners: list[Callable[[Damaged], object]] = []
        # The end of the damage reported of a queue: after a seek back it is not reported again.
        self._told: dict[QueueRef, int] = {}

    @property
    def messages(self) -> Mapping[str, int]:
        """How many messages were left out, by topic."""
        return dict(self._messages)

    def listen(self, heard: Callable[[Damaged], object]) -> None:
        """Calls a function on the event loop once for each `Damaged` from now on.

        If the function raises, that is logged and changes nothing.
        """
        self._listeners.append(heard)

    def tell(self, damaged: Damaged) -> None:
        """Notes messages that are left out."""
        if damaged.next <= self._told.get(damaged.queue, 0):
            return
        self._told[damaged.queue] = damaged.next
        topic, queue_id = damaged.queue
        self.batches += 1
        self._messages[topic] = self._messages.get(topic, 0) + damaged.messages
        _log.error(
            "messages cannot be read and are left out",
            topic=topic, queue_id=queue_id, first=damaged.first, next=damaged.next,
            messages=damaged.messages, reason=damaged.reason,
        )  # fmt: skip
        for heard in self._listeners:
            try:
                heard(damaged)
            except Exception:  # noqa: BLE001 - the application's; the queue goes on
                _log.exception("a listener of damage failed", topic=topic, queue_id=queue_id)


def marker_of(damaged: Damaged, *, at_ms: int) -> Record:
    """The record that is delivered in place of messages, if the application wants that."""
    return Record(
        queue=damaged.queue,
        offset=damaged.next - 1,
        key="",
        tag="",
        headers={DAMAGE_HEADER: damaged.sentence, FIRST_HEADER: str(damaged.first)},
        body=b"",
        born_at_ms=at_ms,
        stored_at_ms=at_ms,
    )


def is_marker(record: Record) -> bool:
    """Whether a record stands for messages that cannot be read."""
    return DAMAGE_HEADER in record.headers and not record.body
