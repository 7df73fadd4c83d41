"""
What is pending in the schedule, as its journal tells it. PURE.

The journal is the truth: its records, applied in order from the first one or from what was kept on the
way, lead to the same state. Between a decision and the moment when its record is durable
an entry is *held*: it is neither taken again nor forgotten.

    journal ──▶ apply ──▶ pending ──take, cancel──▶ held ──apply of the record──▶ gone
                            ▲                        │
                            └────── give_back ───────┘   (the record could not be written)

What is due at a *date* waits by the wall clock, as that stands. What is due after a *delay* waits by the
steady clock, which is never set: `ahead_ms`, from the journal too, leads from one to the other.

Used by `scheduler`, which passes records and the times in; uses `wheel`. It never knows the clock, messages
or files.
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from headrace_mq.broker.schedule.journal import (
    Cancelled,
    ClockSet,
    Delayed,
    Delivered,
    Delivery,
    Event,
    Moved,
)
from headrace_mq.broker.schedule.wheel import Entry, KeptBucket, Wheel

__all__ = ["KeptSchedule", "Schedule"]


class KeptSchedule(msgspec.Struct, frozen=True):
    """The content of `schedule.json`: the state after all journal records below `read_to`.

    `delays` and `held_delays` are by the steady clock, and came later, as `ahead_ms` and `was_set`: the
    first versions took a delay for a date.
    """

    read_to: int
    buckets: list[KeptBucket]
    held: list[Entry]
    unfinished: Delivery | None
    delays: list[KeptBucket] = []
    held_delays: list[Entry] = []
    ahead_ms: int = 0
    was_set: bool = False


class Schedule:
    """The state of one schedule.

    Attributes:
        read_to: the journal offset below which everything is applied.
        unfinished: the last delivery, until it is known to be done.
        ahead_ms: how far the wall clock is ahead of the steady one, for records that follow.
    """

    def __init__(self) -> None:
        self._dates, self._delays = Wheel(), Wheel()
        # Each with the wheel that it belongs to.
        self._held: dict[int, tuple[Entry, Wheel]] = {}
        self._was_set = False
        self.ahead_ms = 0
        self.read_to = 0
        self.unfinished: Delivery | None = None

    def restore(self, kept: KeptSchedule) -> None:
        """Takes over what `kept` returned. Raises ValueError for anything else, and changes nothing."""
        dates, delays = Wheel.restored(kept.buckets), Wheel.restored(kept.delays)
        for entry in kept.held:
            dates.add(entry)
        for entry in kept.held_delays:
            delays.add(entry)
        self._dates, self._delays = dates, delays
        self.ahead_ms, self._was_set = kept.ahead_ms, kept.was_set
        self.read_to, self.unfinished = kept.read_to, kept.unfinished

    def __len__(self) -> int:
        return len(self._dates) + len(self._delays) + len(self._held)

    def kept(self) -> KeptSchedule:
        """Everything that the journal told so far; what is held counts as pending."""
        held = self._held.values()
        return KeptSchedule(
            self.read_to,
            self._dates.kept(),
            [entry for entry, wheel in held if wheel is self._dates],
            self.unfinished,
            self._delays.kept(),
            [entry for entry, wheel in held if wheel is self._delays],
            self.ahead_ms,
            self._was_set,
        )

    def apply(self, event: Event) -> None:
        """Takes over one record of the journal; `read_to` stays the caller's."""
        match event:
            case Entry():
                self._dates.add(event)
            case Delayed(entry):
                self._delays.add(self._steady(entry))
            case Moved():
                self._move(event)
            case Cancelled(number, due_ms):
                self._remove(number, due_ms)
            case Delivery():
                for entry in event.entries():
                    self._remove(entry.number, entry.due_ms)
                # Only one is under way at a time, so the one before is done.
                self.unfinished = event
            case Delivered():
                self.unfinished = None
            case ClockSet(ahead_ms):
                self.ahead_ms, self._was_set = ahead_ms, True
            case _:
                assert_never(event)

    def take(self, wall_ms: int, steady_ms: int, limit: int) -> list[Entry]:
        """Holds up to `limit` entries that are due and returns them, by due time and number."""
        dates, delays = self._dates.take(wall_ms, limit), self._delays.take(steady_ms, limit)
        self._held.update((entry.number, (entry, self._dates)) for entry in dates)
        self._held.update((entry.number, (entry, self._delays)) for entry in delays)
        if not delays:
            return dates
        ahead_ms = wall_ms - steady_ms
        order = [(entry.due_ms, entry.number, entry) for entry in dates]
        order += [(entry.due_ms + ahead_ms, entry.number, entry) for entry in delays]
        due = [entry for _, _, entry in sorted(order)]
        self.give_back(due[limit:])
        return due[:limit]

    def cancel(self, number: int, due_ms: int | None) -> Entry | None:
        """Holds a pending entry and returns it, or None; `due_ms` as stored spares a search."""
        wheel, entry = self._dates, self._dates.remove(number, due_ms)
        if entry is None:
            wheel = self._delays
            entry = wheel.remove(number, None if due_ms is None else due_ms - self.ahead_ms)
        if entry is None and self._was_set:
            # Its delay was counted from what the clock said then.
            entry = wheel.remove(number)
        if entry is not None:
            self._held[number] = entry, wheel
        return entry

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Makes held entries pending again; those that are gone stay gone."""
        for given in entries:
            if given.number in self._held:
                entry, wheel = self._held.pop(given.number)
                wheel.add(entry)

    def advance(self, wall_ms: int, steady_ms: int, limit: int) -> bool:
        """Prepares up to `limit` entries each for their time; True while there are more."""
        more = self._dates.advance(wall_ms, limit)
        return self._delays.advance(steady_ms, limit) or more

    def wake_ms(self, ahead_ms: int) -> int | None:
        """When to look again at the latest, by the wall clock that is so far ahead; None: never."""
        return _earliest(self._dates.wake_ms(), self._delays.wake_ms(), ahead_ms)

    def next_due_ms(self, ahead_ms: int) -> int | None:
        """When the first one is due, by the wall clock that is so far ahead; None: nothing waits."""
        dates, delays = (
            _first([w.next_due_ms(), *(e.due_ms for e, of in self._held.values() if of is w)])
            for w in (self._dates, self._delays)
        )
        return _earliest(dates, delays, ahead_ms)

    def lowest_offset(self) -> int | None:
        """The lowest journal offset that is still to be read; None where there is none."""
        places = [entry.place for entry, _ in self._held.values()]
        if self.unfinished is not None:
            places += [entry.place for entry in self.unfinished.entries()]
        return _first([*places, self._dates.lowest_place(), self._delays.lowest_place()])

    def placed_below(self, place: int, limit: int) -> list[Moved]:
        """Returns up to `limit` waiting entries that stand below a journal offset.

        Their times are as `Cancelled` takes them: a delay's by the steady clock.
        """
        dates = self._dates.placed_below(place, limit)
        delays = self._delays.placed_below(place, limit - len(dates))
        return [*map(Moved, dates), *(Moved(entry, is_delay=True) for entry in delays)]

    def _steady(self, entry: Entry) -> Entry:
        return entry._replace(due_ms=entry.due_ms - self.ahead_ms)

    def _remove(self, number: int, due_ms: int) -> None:
        if self._held.pop(number, None) is None and self._dates.remove(number, due_ms) is None:
            self._delays.remove(number, due_ms)

    def _move(self, moved: Moved) -> None:
        entry = self._steady(moved.entry) if moved.is_delay else moved.entry
        held = self._held.get(entry.number)
        if held is not None:
            self._held[entry.number] = entry, held[1]
        elif not (self._dates.move(entry) or self._delays.move(entry)):
            # Where it stood before is deleted: this copy is the first one that a start finds.
            (self._delays if moved.is_delay else self._dates).add(entry)


def _first(times: Iterable[int | None]) -> int | None:
    return min((at for at in times if at is not None), default=None)


def _earliest(date_ms: int | None, steady_ms: int | None, ahead_ms: int) -> int | None:
    return _first([date_ms, None if steady_ms is None else steady_ms + ahead_ms])
