"""
All pending scheduled messages by the time they are due. PURE.

    hours ──▶ minutes ──▶ near            far away: 24 bytes an entry, packed in arrays
    (arrays)  (arrays)    (a heap)        the next minute: objects, in order

An entry is poured into the next tier about one of its units ahead of time, a few at a time, so that
a full hour costs no pause. What was not poured ahead is poured when it is taken: being late with
that costs time, never an entry.

Used by `entries`, which says what happened and what time it is. It never knows the clock, messages or
files.
"""

import heapq
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import lt
from typing import NamedTuple

import msgspec

__all__ = ["Entry", "KeptBucket", "Wheel"]

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


class Entry(NamedTuple):
    """One pending message.

    Attributes:
        due_ms: when, in ms since 1970 UTC.
        number: its name, for ever.
        place: the offset in the journal where its newest copy stands.
    """

    due_ms: int
    number: int
    place: int


class KeptBucket(msgspec.Struct, frozen=True, array_like=True):
    """A bucket as bytes of 64-bit numbers; `tier` is the width in ms, 0 for the near ones."""

    tier: int
    key: int
    due: bytes
    numbers: bytes
    places: bytes


class _Bucket:
    """Entries of one stretch of time in three arrays, usually in order of their numbers."""

    __slots__ = ("_due", "_in_order", "_numbers", "_places")

    def __init__(self, due: bytes = b"", numbers: bytes = b"", places: bytes = b"") -> None:
        self._due = array("q", due)
        self._numbers = array("q", numbers)
        self._places = array("q", places)
        self._in_order = all(map(lt, self._numbers, self._numbers[1:]))

    def __len__(self) -> int:
        return len(self._due)

    def __iter__(self) -> Iterator[Entry]:
        return map(Entry, self._due, self._numbers, self._places)

    def add(self, entry: Entry) -> None:
        self._in_order = self._in_order and (not self._numbers or self._numbers[-1] < entry.number)
        self._due.append(entry.due_ms)
        self._numbers.append(entry.number)
        self._places.append(entry.place)

    def find(self, number: int) -> int | None:
        if self._in_order:
            at = bisect_left(self._numbers, number)
            return at if at < len(self) and self._numbers[at] == number else None
        try:
            return self._numbers.index(number)
        except ValueError:
            return None

    def at(self, at: int) -> Entry:
        return Entry(self._due[at], self._numbers[at], self._places[at])

    def remove(self, at: int) -> Entry:
        entry = self.at(at)
        del self._due[at], self._numbers[at], self._places[at]
        return entry

    def replace(self, at: int, place: int) -> None:
        self._places[at] = place

    def cut(self, limit: int) -> list[Entry]:
        """Takes up to `limit` entries off the end."""
        start = max(0, len(self) - limit)
        taken = [self.at(at) for at in range(start, len(self))]
        del self._due[start:], self._numbers[start:], self._places[start:]
        return taken

    def earliest_ms(self) -> int:
        return min(self._due)

    def lowest_place(self) -> int:
        return min(self._places)

    def kept(self, tier: int, key: int) -> KeptBucket:
        return KeptBucket(
            tier, key, self._due.tobytes(), self._numbers.tobytes(), self._places.tobytes()
        )


class _Tier:
    """Buckets of one width."""

    __slots__ = ("_buckets", "_keys", "opened", "width_ms")

    def __init__(self, width_ms: int) -> None:
        self.width_ms = width_ms
        # What is due in the buckets up to this one belongs to the next tier.
        self.opened = -1
        self._buckets: dict[int, _Bucket] = {}
        self._keys: list[int] = []

    def takes(self, entry: Entry) -> bool:
        return entry.due_ms // self.width_ms > self.opened

    def add(self, entry: Entry) -> None:
        self._at(entry.due_ms // self.width_ms).add(entry)

    def adopt(self, kept: KeptBucket) -> int:
        bucket = _Bucket(kept.due, kept.numbers, kept.places)
        if kept.key in self._buckets:
            raise ValueError(f"bucket {kept.key} of {kept.tier} ms stands twice")
        self._at(kept.key)
        self._buckets[kept.key] = bucket
        return len(bucket)

    def pour(self, until: int, limit: int | None = None) -> list[Entry]:
        """Takes entries out of the buckets up to `until`, earliest bucket first."""
        self.opened = until
        taken: list[Entry] = []
        while (first := self.first) is not None and first <= until:
            bucket = self._buckets[first]
            taken += bucket.cut(len(bucket) if limit is None else limit - len(taken))
            if len(bucket):
                break
            del self._buckets[first]
        return taken

    @property
    def first(self) -> int | None:
        """The key of the earliest bucket that holds something, or None."""
        while self._keys:
            bucket = self._buckets.get(self._keys[0])
            if bucket is not None and len(bucket):
                return self._keys[0]
            self._buckets.pop(heapq.heappop(self._keys), None)
        return None

    @property
    def earliest_ms(self) -> int | None:
        """When the first entry is due."""
        first = self.first
        return None if first is None else self._buckets[first].earliest_ms()

    def buckets(self) -> list[tuple[int, _Bucket]]:
        return [(key, bucket) for key, bucket in self._buckets.items() if len(bucket)]

    def holding(self, number: int, due_ms: int | None) -> tuple[_Bucket, int] | None:
        """Returns the bucket with a number and its place there; fast where `due_ms` is known."""
        if due_ms is None:
            searched: Iterable[_Bucket] = self._buckets.values()
        else:
            bucket = self._buckets.get(due_ms // self.width_ms)
            searched = [] if bucket is None else [bucket]
        for bucket in searched:
            at = bucket.find(number)
            if at is not None:
                return bucket, at
        return None

    def _at(self, key: int) -> _Bucket:
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket()
            heapq.heappush(self._keys, key)
        return bucket


class Wheel:
    """The pending entries; each has a number of its own."""

    def __init__(self) -> None:
        self._hours = _Tier(HOUR_MS)
        self._minutes = _Tier(MINUTE_MS)
        # The heap holds (due, number), also of entries that have gone; the dict tells.
        self._order: list[tuple[int, int]] = []
        self._near: dict[int, Entry] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, entry: Entry) -> None:
        """Enters an entry, however long ago it was due; the number must be new."""
        self._count += 1
        self._put(entry)

    def take(self, now_ms: int, limit: int) -> list[Entry]:
        """Takes out up to `limit` entries that are due, by due time, then by number."""
        self._pour(now_ms, now_ms, None)
        taken: list[Entry] = []
        while len(taken) < limit and self._first_near() is not None:
            due_ms, number = self._order[0]
            if due_ms > now_ms:
                break
            heapq.heappop(self._order)
            taken.append(self._near.pop(number))
        self._count -= len(taken)
        return taken

    def advance(self, now_ms: int, limit: int) -> bool:
        """Pours up to `limit` entries ahead of their time; True while more wait for that."""
        return self._pour(now_ms + HOUR_MS, now_ms + MINUTE_MS, limit) >= limit

    def remove(self, number: int, due_ms: int | None = None) -> Entry | None:
        """Takes out an entry, or returns None; without its due time every bucket is searched."""
        entry = self._near.pop(number, None)
        if entry is None:
            held = self._holding(number, due_ms)
            entry = None if held is None else held[0].remove(held[1])
        self._count -= entry is not None
        return entry

    def move(self, entry: Entry) -> bool:
        """Notes that a pending entry stands elsewhere now; False where it is not pending."""
        if entry.number in self._near:
            self._near[entry.number] = entry
            return True
        held = self._holding(entry.number, entry.due_ms)
        if held is None:
            return False
        held[0].replace(held[1], entry.place)
        return True

    def wake_ms(self) -> int | None:
        """When something is to be done next, pouring included; None where nothing is pending."""
        near = self._first_near()
        times = [] if near is None else [near.due_ms]
        for tier in (self._minutes, self._hours):
            if (first := tier.first) is not None:
                times.append((first - 1) * tier.width_ms)
        return min(times, default=None)

    def next_due_ms(self) -> int | None:
        """When the first entry is due; None where nothing is pending."""
        near = self._first_near()
        times = (near and near.due_ms, self._minutes.earliest_ms, self._hours.earliest_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def lowest_place(self) -> int | None:
        """The lowest journal offset that a pending entry stands at."""
        places = [bucket.lowest_place() for _, bucket in self._buckets()]
        places += [entry.place for entry in self._near.values()]
        return min(places, default=None)

    def placed_below(self, place: int, limit: int) -> list[Entry]:
        """Returns up to `limit` entries that stand below a journal offset."""
        found = list(islice((e for e in self._near.values() if e.place < place), limit))
        for _, bucket in self._buckets():
            if len(found) == limit:
                break
            if bucket.lowest_place() < place:
                found += islice((e for e in bucket if e.place < place), limit - len(found))
        return found

    def kept(self) -> list[KeptBucket]:
        """Everything, as `restored` takes it."""
        near = _Bucket()
        for entry in self._near.values():
            near.add(entry)
        kept = [
            bucket.kept(tier.width_ms, key)
            for tier in (self._hours, self._minutes)
            for key, bucket in tier.buckets()
        ]
        return [*kept, near.kept(0, 0)] if len(near) else kept

    @classmethod
    def restored(cls, kept: Iterable[KeptBucket]) -> "Wheel":
        """Makes a wheel of what `kept` returned. Raises ValueError for anything else."""
        wheel = cls()
        tiers = {tier.width_ms: tier for tier in (wheel._hours, wheel._minutes)}
        for one in kept:
            if not len(one.due) == len(one.numbers) == len(one.places):
                raise ValueError("the columns of a bucket differ in length")
            tier = tiers.get(one.tier)
            if tier is not None:
                wheel._count += tier.adopt(one)
                continue
            for entry in _Bucket(one.due, one.numbers, one.places):
                wheel.add(entry)
        return wheel

    def _put(self, entry: Entry) -> None:
        if self._hours.takes(entry):
            self._hours.add(entry)
        elif self._minutes.takes(entry):
            self._minutes.add(entry)
        else:
            self._near[entry.number] = entry
            heapq.heappush(self._order, (entry.due_ms, entry.number))

    def _pour(self, hours_ms: int, minutes_ms: int, limit: int | None) -> int:
        moved = 0
        poured = self._hours.pour(hours_ms // HOUR_MS, limit)
        for entry in poured:
            self._minutes.add(entry)
        moved += len(poured)
        left = None if limit is None else max(0, limit - moved)
        poured = self._minutes.pour(minutes_ms // MINUTE_MS, left)
        for entry in poured:
            self._near[entry.number] = entry
            heapq.heappush(self._order, (entry.due_ms, entry.number))
        return moved + len(poured)

    def _first_near(self) -> Entry | None:
        while self._order:
            due_ms, number = self._order[0]
            entry = self._near.get(number)
            if entry is not None and entry.due_ms == due_ms:
                return entry
            heapq.heappop(self._order)
        return None

    def _holding(self, number: int, due_ms: int | None) -> tuple[_Bucket, int] | None:
        return self._minutes.holding(number, due_ms) or self._hours.holding(number, due_ms)

    def _buckets(self) -> list[tuple[int, _Bucket]]:
        return [*self._minutes.buckets(), *self._hours.buckets()]
