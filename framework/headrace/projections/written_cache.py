"""
The versions and rows that a runner wrote last, which it need not read again.

Every batch moves an offset of its generation in the transaction that writes its rows. So if all stored
offsets are still those that this runner wrote, read under the lock that every batch takes, its versions
and rows are those of the tables. If not, the cache is cleared: after a parked event, a batch of another
runner or a switch. It is also cleared after a transaction that failed, because the transaction may have
been committed all the same, and a fold may have changed a row that it was given.

Each cache belongs to one runner; `batch_transaction` reads and writes it. Pure.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from pydantic import BaseModel

from headrace.transports.base import QueueId

__all__ = ["Recall"]

R = TypeVar("R", bound=BaseModel)
V = TypeVar("V")

# Versions, and rows, in one projection's cache: at least so many, and at most twice as many; a few tens
# of megabytes if rows are small.
_KEPT_MAX: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written(Generic[R]):
    generation: int
    offsets: Mapping[QueueId, int]
    versions: Mapping[str, int]
    rows: Mapping[str, R | None]


class Recall(Generic[R]):
    """Versions of aggregates and rows by key.

    Args:
        kept_max: as many of each are kept at least; those not asked for longest go first.
    """

    def __init__(self, kept_max: int = _KEPT_MAX) -> None:
        self._generation = 0
        self._offsets: Mapping[QueueId, int] | None = None
        self._versions: _Kept[int] = _Kept(kept_max)
        self._rows: _Kept[R | None] = _Kept(kept_max)
        self._written: _Written[R] | None = None
        self._settled = True
        self._trusted = False

    def expect(self, generation: int, offsets: Mapping[QueueId, int]) -> None:
        """Begins a transaction; forgets everything unless these are the offsets the last one left."""
        same = self._settled and (generation, offsets) == (self._generation, self._offsets)
        self._settled, self._written = False, None
        if not same:
            self._generation, self._offsets = generation, offsets
            self._versions.clear()
            self._rows.clear()

    def offsets_left(
        self, generation: int, begin: Mapping[QueueId, int | None]
    ) -> Mapping[QueueId, int] | None:
        """Returns the offsets that the last transaction left of a generation; None: unknown.

        A batch that begins there need not read them, as long as writing the new ones finds all
        stored offsets so.
        """
        left = self._offsets
        if not self._settled or left is None or generation != self._generation:
            return None
        return left if all(left.get(queue) == begin[queue] is not None for queue in begin) else None

    def trust(self) -> None:
        """Begins a transaction that is undone unless the offsets are those the last one left."""
        self._settled, self._written, self._trusted = False, None, True

    def doubt(self) -> bool:
        """Whether a transaction that has not written anything trusted; the next one reads."""
        trusted, self._trusted = self._trusted, False
        return trusted

    def versions(self, aggregate_ids: Iterable[str]) -> dict[str, int]:
        """Returns the versions it knows."""
        return self._versions.find(aggregate_ids)

    def rows(self, keys: Collection[str]) -> dict[str, R | None]:
        """Returns the rows it knows; None: it knows that there is none."""
        return self._rows.find(keys)

    def write(
        self,
        offsets: Mapping[QueueId, int],
        versions: Mapping[str, int],
        rows: Mapping[str, R | None],
    ) -> None:
        """Notes what a transaction reads and writes; it is known once that has ended well.

        Args:
            offsets: the new ones of the batch's queues.
            versions: of aggregates that are not parked.
            rows: those that no other projection code writes.
        """
        self._written = _Written(
            generation=self._generation,
            offsets={**(self._offsets or {}), **offsets},
            versions=versions,
            rows=rows,
        )

    def settle(self) -> None:
        """The transaction was committed."""
        self._settled, self._trusted = True, False
        written, self._written = self._written, None
        if written is not None:
            self._offsets = written.offsets
            self._versions.keep(written.versions)
            self._rows.keep(written.rows)


class _Kept(Generic[V]):
    """Values by key in two halves: a full young one becomes the old one, whose place it takes."""

    def __init__(self, half_max: int) -> None:
        self._half_max = half_max
        self._young: dict[str, V] = {}
        self._old: dict[str, V] = {}

    def clear(self) -> None:
        self._young, self._old = {}, {}

    def find(self, keys: Iterable[str]) -> dict[str, V]:
        young, old = self._young, self._old
        found: dict[str, V] = {}
        for key in keys:
            if key in young:
                found[key] = young[key]
            elif key in old:
                found[key] = young[key] = old[key]
        return found

    def keep(self, values: Mapping[str, V]) -> None:
        self._young.update(values)
        if len(self._young) > self._half_max:
            self._young, self._old = {}, self._young
