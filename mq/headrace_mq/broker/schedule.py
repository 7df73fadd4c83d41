"""
What is pending in the schedule, as its journal tells it. PURE.

The journal is the truth: whoever applies its records in order, from its first one or from what was
kept on the way, comes to the same state. Between a decision and the moment when its record is durable
an entry is *held*: it is neither taken again nor forgotten.

    journal ──▶ apply ──▶ pending ──take, cancel──▶ held ──apply of the record──▶ gone
                            ▲                        │
                            └────── give_back ───────┘   (the record could not be written)

Sits between: `scheduler`, which brings records and the time, and `schedule_wheel`. Must never know
the clock, messages or files.
"""

from collections.abc import Iterable
from typing import assert_never

import msgspec

from headrace_mq.broker.schedule_journal import (
    Cancelled,
    Delivered,
    Delivery,
    Event,
    Moved,
)
from headrace_mq.broker.schedule_wheel import Entry, KeptBucket, Wheel

__all__ = ["KeptSchedule", "Schedule"]


class KeptSchedule(msgspec.Struct, frozen=True):
    """The content of `schedule.json`: the state after all journal records below `read_to`."""

    read_to: int
    buckets: list[KeptBucket]
    held: list[Entry]
    unfinished: Delivery | None


class Schedule:
    """The state of one schedule.

    Attributes:
        read_to: the journal offset below which everything is applied.
        unfinished: the last delivery, until it is known to be done.
    """

    def __init__(self) -> None:
        self._wheel = Wheel()
        self._held: dict[int, Entry] = {}
        self.read_to = 0
        self.unfinished: Delivery | None = None

    @classmethod
    def restored(cls, kept: KeptSchedule) -> "Schedule":
        """Makes a schedule of what `kept` returned. Raises ValueError for anything else."""
        schedule = cls()
        schedule._wheel = Wheel.restored(kept.buckets)
        for entry in kept.held:
            schedule._wheel.add(entry)
        schedule.read_to = kept.read_to
        schedule.unfinished = kept.unfinished
        return schedule

    def __len__(self) -> int:
        return len(self._wheel) + len(self._held)

    def kept(self) -> KeptSchedule:
        """Everything that the journal told so far; what is held counts as pending."""
        held = list(self._held.values())
        return KeptSchedule(self.read_to, self._wheel.kept(), held, self.unfinished)

    def apply(self, event: Event) -> None:
        """Takes over one record of the journal; `read_to` stays the caller's."""
        match event:
            case Entry():
                self._wheel.add(event)
            case Moved(entry):
                self._move(entry)
            case Cancelled(number, due_ms):
                self._remove(number, due_ms)
            case Delivery():
                for entry in event.entries():
                    self._remove(entry.number, entry.due_ms)
                # Only one is under way at a time, so the one before is done.
                self.unfinished = event
            case Delivered():
                self.unfinished = None
            case _:
                assert_never(event)

    def take(self, now_ms: int, limit: int) -> list[Entry]:
        """Holds up to `limit` entries that are due and returns them, by due time and number."""
        taken = self._wheel.take(now_ms, limit)
        self._held.update((entry.number, entry) for entry in taken)
        return taken

    def cancel(self, number: int, due_ms: int | None) -> Entry | None:
        """Holds a pending entry and returns it, or None; `due_ms` spares a search."""
        entry = self._wheel.remove(number, due_ms)
        if entry is not None:
            self._held[number] = entry
        return entry

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Makes held entries pending again; those that are gone stay gone."""
        for entry in entries:
            held = self._held.pop(entry.number, None)
            if held is not None:
                self._wheel.add(held)

    def advance(self, now_ms: int, limit: int) -> bool:
        """Prepares up to `limit` entries for their time; True while there are more."""
        return self._wheel.advance(now_ms, limit)

    def wake_ms(self) -> int | None:
        """When to look again at the latest; None where nothing waits."""
        return self._wheel.wake_ms()

    def next_due_ms(self) -> int | None:
        """When the first one is due; None where nothing waits."""
        held = (entry.due_ms for entry in self._held.values())
        waiting = self._wheel.next_due_ms()
        return min([*held, waiting] if waiting is not None else held, default=None)

    def lowest_place(self) -> int | None:
        """The lowest journal offset that is still to be read; None where there is none."""
        places = [entry.place for entry in self._held.values()]
        if self.unfinished is not None:
            places += [entry.place for entry in self.unfinished.entries()]
        waiting = self._wheel.lowest_place()
        return min([*places, waiting] if waiting is not None else places, default=None)

    def placed_below(self, place: int, limit: int) -> list[Entry]:
        """Returns up to `limit` waiting entries that stand below a journal offset."""
        return self._wheel.placed_below(place, limit)

    def _remove(self, number: int, due_ms: int) -> None:
        if self._held.pop(number, None) is None:
            self._wheel.remove(number, due_ms)

    def _move(self, entry: Entry) -> None:
        if entry.number in self._held:
            self._held[entry.number] = entry
        elif not self._wheel.move(entry):
            # Where it stood before is deleted: this copy is the first one that a start finds.
            self._wheel.add(entry)
