"""
What happened to messages, and whether it is what the queue promises.

    sent ──▶ acknowledged ──▶ delivered ──▶ done ──▶ committed        (and reset, and crashes)

A history is a list of such events in the order in which they happened, and what the log holds in
the end. `check` reads it once and returns every broken promise with a sentence.

Used by tests that recorded a run, simulated or real. Pure.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from headrace_mq.message import QueueRef

__all__ = [
    "Acknowledged",
    "Broken",
    "Committed",
    "Crashed",
    "Event",
    "Failed",
    "Finished",
    "Granted",
    "Received",
    "Reset",
    "Sent",
    "TakenBack",
    "Told",
    "check",
]

Place = tuple[QueueRef, int]


class Sent(NamedTuple):
    """A producer handed a message over; the bodies of a history differ from each other."""

    at_ms: int
    body: bytes
    key: str
    producer: str


class Acknowledged(NamedTuple):
    """The broker confirmed the message; offset -1: it was known, its place is forgotten."""

    at_ms: int
    body: bytes
    queue: QueueRef
    offset: int


class TakenBack(NamedTuple):
    """A scheduled message was taken back; `sure` is False where it is unknown whether in time."""

    at_ms: int
    body: bytes
    sure: bool


class Received(NamedTuple):
    """A record reached the application.

    `in_turn`: its key was to wait for its turn (True), the queue's order was to be kept (False), or
    nothing was (None).
    """

    at_ms: int
    group: str
    member: str
    queue: QueueRef
    offset: int
    body: bytes
    in_turn: bool | None


class Finished(NamedTuple):
    """The application is done with a record, and acknowledges it next."""

    at_ms: int
    group: str
    member: str
    queue: QueueRef
    offset: int


class Failed(NamedTuple):
    """The application failed on a record, which may be put elsewhere and counts as passed here."""

    at_ms: int
    group: str
    member: str
    queue: QueueRef
    offset: int


class Committed(NamedTuple):
    """The broker took a member's commit (`accepted`), or the member only asked for it.

    `epoch` is that of the member's lock on the queue; 0: it needs none.
    """

    at_ms: int
    group: str
    member: str
    queue: QueueRef
    offset: int
    accepted: bool
    epoch: int = 0


class Granted(NamedTuple):
    """The broker gave a member the lock on a queue."""

    at_ms: int
    group: str
    member: str
    queue: QueueRef
    epoch: int


class Told(NamedTuple):
    """The broker told a group's offset; -1: none."""

    at_ms: int
    group: str
    queue: QueueRef
    offset: int


class Reset(NamedTuple):
    """An operator moves a group to another offset; from here on it may count."""

    at_ms: int
    group: str
    queue: QueueRef
    offset: int


class Crashed(NamedTuple):
    """The broker died: the commits of the last moments may be forgotten."""

    at_ms: int


Event = (
    Sent | Acknowledged | TakenBack | Received | Finished | Failed | Committed | Granted | Told | Reset
    | Crashed
)  # fmt: skip


class Broken(NamedTuple):
    """A broken promise: its name, and what shows it."""

    promise: str
    sentence: str


class _Reading:
    """One queue as one group reads it."""

    def __init__(self) -> None:
        self.next_new = 0
        self.seen: set[int] = set()
        self.done: set[int] = set()
        self.failed: set[int] = set()
        self.skipped: set[int] = set()
        # Every offset that a member ever tried to commit: where reading may begin again.
        self.starts = {0}
        self.committed: list[tuple[int, int]] = []
        self.floor = -1
        self.done_below = 0
        self.owner = (0, "")
        # Whose each epoch of the lock is.
        self.owners: dict[int, str] = {}
        self.last_of: dict[str, int] = {}


class _Check:
    def __init__(self, log: Mapping[Place, bytes], forgets_ms: int) -> None:
        self._log = log
        self._forgets_ms = forgets_ms
        self._sent: dict[bytes, Sent] = {}
        self._order: dict[bytes, int] = {}
        self._acknowledged: list[Acknowledged] = []
        self._cancelled: dict[bytes, bool] = {}
        self._readings: dict[tuple[str, QueueRef], _Reading] = {}
        self._held: dict[QueueRef, list[int]] = {}
        self.broken: list[Broken] = []
        for queue, offset in sorted(log):
            self._held.setdefault(queue, []).append(offset)

    def take(self, event: Event) -> None:
        match event:
            case Sent():
                self._order[event.body] = len(self._order)
                self._sent[event.body] = event
            case Acknowledged():
                self._acknowledged.append(event)
            case TakenBack():
                self._cancelled[event.body] = event.sure
            case Received():
                self._delivered(event)
            case Finished():
                self._reading(event).done.add(event.offset)
            case Failed():
                self._reading(event).failed.add(event.offset)
            case Committed():
                self._committed(event)
            case Granted():
                self._granted(event)
            case Told():
                self._told(event)
            case Reset():
                self._reset(event)
            case Crashed():
                self._crashed(event)

    def finish(self, groups: Collection[str]) -> None:
        self._check_log()
        self._check_acknowledged()
        for group in groups:
            for queue, offsets in self._held.items():
                reading = self._readings.setdefault((group, queue), _Reading())
                missing = [n for n in offsets if n not in reading.done and n not in reading.skipped]
                if missing:
                    self._break("never done", f"{group} never finished {_at(queue, *missing[:5])}")

    def _reading(
        self, event: Received | Finished | Failed | Committed | Granted | Told | Reset
    ) -> _Reading:
        key = (event.group, event.queue)
        found = self._readings.get(key)
        if found is None:
            found = self._readings[key] = _Reading()
        return found

    def _break(self, promise: str, sentence: str) -> None:
        self.broken.append(Broken(promise, sentence))

    # --- the log --------------------------------------------------------------------------------

    def _check_log(self) -> None:
        seen: dict[bytes, Place] = {}
        for place, body in sorted(self._log.items()):
            if body not in self._sent:
                self._break("phantom", f"{_at(*place)} holds {body!r}, which was never sent")
            if body in seen:
                self._break("stored twice", f"{body!r} is at {_at(*seen[body])} and {_at(*place)}")
            seen.setdefault(body, place)

    def _check_acknowledged(self) -> None:
        places: dict[tuple[str, str], dict[int, Place]] = {}
        stored = set(self._log.values())
        for body, sure in self._cancelled.items():
            if sure and body in stored:
                self._break("cancelled", f"{body!r} was taken back in time, and delivered")
        for event in self._acknowledged:
            place = (event.queue, event.offset)
            if event.offset < 0:
                if event.body not in stored and event.body not in self._cancelled:
                    self._break("lost", f"{event.body!r} was acknowledged and is nowhere")
                continue
            held = self._log.get(place)
            if held is None:
                self._break("lost", f"{event.body!r} was acknowledged at {_at(*place)}")
            elif held != event.body:
                self._break("changed", f"{_at(*place)} holds {held!r} instead of {event.body!r}")
            sent = self._sent.get(event.body)
            if sent is not None:
                numbered = places.setdefault((sent.producer, sent.key), {})
                numbered[self._order[event.body]] = place
        for (producer, key), numbered in places.items():
            if key:
                self._check_order(producer, key, [numbered[number] for number in sorted(numbered)])

    def _check_order(self, producer: str, key: str, places: list[Place]) -> None:
        if len({queue for queue, _ in places}) > 1:
            self._break("key in two queues", f"{key!r} of {producer} is in several queues")
        for one, other in pairwise(places):
            if one[0] == other[0] and one[1] >= other[1]:
                self._break(
                    "order", f"{key!r} of {producer}: {_at(*other)} was sent behind {_at(*one)}"
                )

    # --- deliveries -----------------------------------------------------------------------------

    def _delivered(self, event: Received) -> None:
        reading, offset = self._reading(event), event.offset
        where = f"{event.member} of {event.group} at {event.at_ms} ms: {_at(event.queue, offset)}"
        held = self._log.get((event.queue, offset))
        if held != event.body:
            self._break("changed", f"{where} was delivered as {event.body!r}, the log has {held!r}")
        if event.in_turn is None:
            pass
        elif event.in_turn:
            # Keys are handled side by side: a queue's order is not to be seen here.
            if offset not in reading.seen:
                self._check_turn(event, reading, where)
        else:
            self._check_run(event, reading, where)
        reading.seen.add(offset)
        reading.next_new = max(reading.next_new, offset + 1)

    def _check_run(self, event: Received, reading: _Reading, where: str) -> None:
        queue, offset = event.queue, event.offset
        last = reading.last_of.get(event.member, -1)
        goes_on = -1 < last < offset and not self._between(queue, last + 1, offset)
        if not goes_on and offset not in self._firsts(queue, reading.starts):
            self._break("began anywhere", f"{where} is no place that was ever to be committed")
        reading.last_of[event.member] = offset
        left_out = self._between(queue, reading.next_new, offset)
        if left_out:
            self._break("left out", f"{where} came before {_at(queue, *left_out[:5])}")

    def _firsts(self, queue: QueueRef, starts: Collection[int]) -> set[int]:
        """The first offset that is held from each of these on."""
        held = self._held.get(queue, [])
        return {held[at] for start in starts if (at := bisect_left(held, start)) < len(held)}

    def _check_turn(self, event: Received, reading: _Reading, where: str) -> None:
        sent = self._sent.get(event.body)
        for earlier in self._held.get(event.queue, ()):
            if earlier >= event.offset:
                return
            before = self._sent.get(self._log[event.queue, earlier])
            same = before is not None and sent is not None and before.key == sent.key
            if same and earlier not in reading.done and earlier not in reading.skipped:
                self._break("out of turn", f"{where} began before {earlier} of its key was done")

    def _between(self, queue: QueueRef, first: int, end: int) -> list[int]:
        return [offset for offset in range(first, end) if (queue, offset) in self._log]

    # --- offsets --------------------------------------------------------------------------------

    def _granted(self, event: Granted) -> None:
        reading = self._reading(event)
        known = reading.owners.setdefault(event.epoch, event.member)
        if known != event.member:
            self._break(
                "two owners",
                f"{event.group} locked {_at(event.queue)} under {event.epoch} for {known} and, at"
                f" {event.at_ms} ms, for {event.member}",
            )
        reading.owner = max(reading.owner, (event.epoch, event.member))

    def _committed(self, event: Committed) -> None:
        reading = self._reading(event)
        # Taken or not: the answer may be what got lost.
        reading.starts.add(event.offset)
        if not event.accepted:
            return
        if event.epoch and event.epoch < reading.owner[0]:
            self._break(
                "stale commit",
                f"{event.member} of {event.group} committed {_at(event.queue, event.offset)} at"
                f" {event.at_ms} ms, when the queue was {reading.owner[1]}'s",
            )
        if event.epoch and reading.owners.get(event.epoch, event.member) != event.member:
            self._break(
                "two owners",
                f"{event.member} of {event.group} committed {_at(event.queue, event.offset)} at"
                f" {event.at_ms} ms under the lock of {reading.owners[event.epoch]}",
            )
        passed = reading.done | reading.failed | reading.skipped
        for offset in self._between(event.queue, reading.done_below, event.offset):
            if offset not in passed:
                self._break(
                    "skipped",
                    f"{event.member} of {event.group} committed {event.offset} at {event.at_ms} ms,"
                    f" and {_at(event.queue, offset)} is not done",
                )
                break
        reading.done_below = max(reading.done_below, event.offset)
        reading.committed.append((event.at_ms, event.offset))
        reading.floor = max(reading.floor, event.offset)

    def _told(self, event: Told) -> None:
        reading = self._reading(event)
        if event.offset < reading.floor:
            self._break(
                "went back",
                f"{event.group} stands at {_at(event.queue, event.offset)} at {event.at_ms} ms, and"
                f" stood at {reading.floor}",
            )
        if event.offset not in reading.starts and event.offset != -1:
            self._break(
                "offset from nowhere",
                f"{event.group} stands at {_at(event.queue, event.offset)} at {event.at_ms} ms,"
                " which no member committed",
            )
        reading.floor = max(reading.floor, event.offset)
        reading.committed.append((event.at_ms, event.offset))

    def _reset(self, event: Reset) -> None:
        reading = self._reading(event)
        reading.starts.add(event.offset)
        reading.committed.clear()
        reading.floor = -1
        reading.skipped |= set(range(event.offset)) - reading.done
        reading.next_new = max(reading.next_new, event.offset)

    def _crashed(self, event: Crashed) -> None:
        durable_ms = event.at_ms - self._forgets_ms
        for reading in self._readings.values():
            reading.committed = [entry for entry in reading.committed if entry[0] <= durable_ms]
            reading.floor = max((offset for _, offset in reading.committed), default=-1)


def _at(queue: QueueRef, *offsets: int) -> str:
    return f"{queue.topic}/{queue.queue_id} {', '.join(map(str, offsets))}"


def check(
    events: Iterable[Event],
    *,
    log: Mapping[Place, bytes],
    groups: Collection[str],
    forgets_ms: int = 0,
) -> list[Broken]:
    """Returns every promise that a history breaks.

    Args:
        events: in the order in which they happened.
        log: the body at every place of every queue, as it is in the end.
        groups: those that must have finished everything.
        forgets_ms: how long before a crash of the broker commits may be forgotten.
    """
    judge = _Check(log, forgets_ms)
    for event in events:
        judge.take(event)
    judge.finish(groups)
    return judge.broken
