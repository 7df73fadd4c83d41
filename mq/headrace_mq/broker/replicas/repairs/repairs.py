"""
The damaged places of a broker's logs, and how they get sound bytes from another broker of the group.

    found: a reader, a scrub, a start, a replica that refused bytes
      └─▶ wanted ─(FOLLOW, either way)─▶ the peer's sound bytes ─▶ checked, written in place ─▶ readers have them again
             └─▶ no peer has them in WAIT_MS_MAX: readers leave them out; it asks again every ASK_MS

A leader asks replicas that it has confirmed up to there, and a replica asks its leader for what that one has confirmed.
Used by `followers` and `replica`, through `StoreLogs`; the store's `Mender` checks and writes.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.bodies import (
    DamagedRange,
    FollowAnswer,
    FollowRequest,
    SoundRange,
)
from headrace_mq.errors import DataCorrupt, FormatTooNew
from headrace_mq.message import QueueRef
from headrace_mq.store.message_store import Damage, MessageStore
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.replication.mend import Mender, remove_indexes
from headrace_mq.store.segment.segment import SyncFailed

__all__ = ["ASK_MS", "RANGES_MAX", "REPAIR_BYTES_MAX", "WAIT_MS_MAX", "RepairFigures", "Repairs"]

_log = get_logger(__name__)

# Readers wait this long for a damaged batch: some round trips of a slow network, and half of what a client waits for an
# answer at least.
WAIT_MS_MAX = 2_000
# A peer is asked again for a place after this: it may have the bytes by now, or its disk may be mended.
ASK_MS = 10_000
# Bytes in one question or answer, besides one larger batch: as many as a leader sends of a log.
REPAIR_BYTES_MAX = 4 << 20
# Places in one question. Each costs a read at the peer.
RANGES_MAX = 16
# Damaged places that are remembered: a disk that has more must be replaced.
PLACES_MAX = 10_000
# A leader hands over for the sake of repaired messages once in this time: clients wait while it does.
START_MS = 60_000
# A peer that was not heard for as long as this mends nothing now.
_HEARD_MS_MAX = 3_000

_Place = tuple[str, int]


class RepairFigures(NamedTuple):
    """What became of damage, since the process started.

    Attributes:
        repaired: places that got sound bytes from another broker.
        waiting: places that have none yet.
        hopeless: those of them that no broker had sound bytes for, so that readers leave them out.
    """

    repaired: int
    waiting: int
    hopeless: int


class _Wound:
    """One damaged place.

    Attributes:
        damage: what is known of it.
        found_ms: when it was found.
        unindexed: whether the start left it out, so that only another start can take it in again.
        asked_ms: when each peer was asked last.
        trouble: why the last bytes were not taken, so that it is said once.
    """

    def __init__(self, damage: Damage, found_ms: int, *, unindexed: bool) -> None:
        self.damage = damage
        self.found_ms = found_ms
        self.unindexed = unindexed
        self.asked_ms: dict[str, int] = {}
        self.trouble = ""


class Repairs:
    """The damage of one broker of a group, over every closing and opening of its store.

    Args:
        epochs: of the logs.
        clock: the time.
    """

    def __init__(self, epochs: EpochFile, clock: Clock | None = None) -> None:
        self._epochs = epochs
        self._clock = clock or SystemClock()
        self._store: MessageStore | None = None
        self._wounds: dict[_Place, _Wound] = {}
        self._heard_ms = -_HEARD_MS_MAX
        self._repaired = 0
        # Segments whose bytes are sound again, but whose indexes leave them out; and the places for which that was done,
        # because a start may leave out sound bytes as well.
        self._stale: set[Path] = set()
        self._reindexed: set[_Place] = set()
        self._asked_for_start_ms = -START_MS

    @property
    def figures(self) -> RepairFigures:
        """What became of damage."""
        late = self._clock.monotonic_ms() - WAIT_MS_MAX
        hopeless = sum(wound.found_ms <= late for wound in self._wounds.values())
        return RepairFigures(self._repaired, len(self._wounds), hopeless)

    @property
    def is_stale(self) -> bool:
        """Whether the store should be opened again, so that it takes in what was repaired."""
        return bool(self._stale)

    def asks_for_another_start(self) -> bool:
        """Whether a leader should hand over now, so that its next start takes in what was repaired; seldom."""
        now_ms = self._clock.monotonic_ms()
        asks = self.is_stale and now_ms - self._asked_for_start_ms >= START_MS
        if asks:
            self._asked_for_start_ms = now_ms
            _log.warning("messages were repaired; this leader hands over, to read them at a start")
        return asks

    @property
    def may_come(self) -> bool:
        """Whether a peer may soon have bytes for a place that the start left out."""
        now_ms = self._clock.monotonic_ms()
        return self._is_heard(now_ms) and any(
            wound.unindexed and now_ms - wound.found_ms < WAIT_MS_MAX
            for wound in self._wounds.values()
        )

    # The store.

    def opened(self, store: MessageStore) -> None:
        """Takes the store that is open now, with the damage that its start found."""
        self._store = store
        self._wounds.clear()
        store.wait_for_mending(self._met)
        for damage in store.damage:
            place = damage.log, damage.position
            if damage.length <= 0 or place in self._reindexed or store.mender.is_compacted(*place):
                continue
            self._add(damage, unindexed=True)
            try:
                if not store.mender.damage_in(*damage[:3]):
                    # An earlier process wrote sound bytes, but did not come to open the store again.
                    self._mended(self._wounds[place], damage.position + damage.length)
            except (OSError, FormatTooNew):
                continue

    def closed(self) -> None:
        """Forgets the store that is closed, and removes indexes that leave out what was repaired.

        Raises:
            OSError: they are still there.
        """
        store, self._store = self._store, None
        stale, self._stale = self._stale, set()
        if store is not None:
            remove_indexes(store.mender.files, stale)

    def _add(self, damage: Damage, *, unindexed: bool = False) -> _Wound:
        place = damage.log, damage.position
        wound = self._wounds.get(place)
        if wound is None:
            wound = _Wound(damage, self._clock.monotonic_ms(), unindexed=unindexed)
            if len(self._wounds) < PLACES_MAX:
                self._wounds[place] = wound
        return wound

    def _met(self, damage: Damage) -> bool:
        """Whether a reader that met damage shall wait for sound bytes."""
        if self._store is None or self._store.mender.is_compacted(damage.log, damage.position):
            return False
        now_ms = self._clock.monotonic_ms()
        is_new = (damage.log, damage.position) not in self._wounds
        wound = self._add(damage)
        if not self._is_heard(now_ms) or now_ms - wound.found_ms >= WAIT_MS_MAX:
            return False
        if is_new:
            _log.warning("a stored batch is damaged; another broker is asked", **damage.facts())
            loop = asyncio.get_running_loop()
            loop.call_later(WAIT_MS_MAX / 1_000, self._wake, damage)
        return True

    def _is_heard(self, now_ms: int) -> bool:
        return now_ms - self._heard_ms < _HEARD_MS_MAX

    def _wake(self, damage: Damage) -> None:
        """Lets readers come back for what is damaged, to leave it out."""
        if self._store is not None and (damage.log, damage.position) in self._wounds:
            self._tell(damage)

    def _tell(self, damage: Damage) -> None:
        if self._store is not None and self._store.on_visible is not None and damage.queue:
            self._store.on_visible([QueueRef(*damage.queue)])

    def suspect(self, log: str, position: int, length: int) -> None:
        """Looks at a range that may be damaged, and notes what is."""
        if self._store is None or log not in self._store.raw.ends():
            return
        try:
            found = self._store.mender.damage_in(log, position, length)
        except (OSError, FormatTooNew) as error:
            _log.error("a log cannot be read; check the disk", log=log, error=str(error))
            return
        for damage in found:
            if (damage.log, damage.position) not in self._wounds:
                _log.error("the log is damaged; another broker is asked", **damage.facts())
                self._add(damage)

    @property
    def mender(self) -> Mender | None:
        """Of the store that is open; None while none is."""
        return None if self._store is None else self._store.mender

    def renew(self) -> None:
        """Asks again for what the start left out, because a term begins: its peers may be others."""
        now_ms = self._clock.monotonic_ms()
        for wound in self._wounds.values():
            if wound.unindexed:
                wound.found_ms = now_ms
            wound.asked_ms.clear()

    # What a leader hears from a replica, and answers it.

    def hear(self, request: FollowRequest) -> None:
        """Takes a replica's sound bytes, and looks at what came damaged to it."""
        for one in request.refused:
            self.suspect(one.log, one.position, one.length)
        self.take(request.found)

    def wants(self, request: FollowRequest) -> bool:
        """Whether the answer to a replica asks it for anything; that is, for what this leader has confirmed to it."""
        self._heard_ms = now_ms = self._clock.monotonic_ms()
        return any(True for _ in self._due(request.member, _counted(request), now_ms))

    def answered(self, request: FollowRequest, answer: FollowAnswer) -> FollowAnswer:
        """Returns an answer with what the replica wants, and with what this leader wants of it."""
        wanted = self.wanted(request.member, _counted(request))
        if not wanted and not request.wanted:
            return answer
        found = self.supply(request.wanted)
        return msgspec.structs.replace(answer, wanted=wanted, found=found)

    # What passes either way.

    def wanted(self, peer: str, ends: Mapping[str, int]) -> list[DamagedRange]:
        """Returns what to ask a peer for now; it is asked for a place again after `ASK_MS`.

        Args:
            peer: its name.
            ends: for each log the position up to which the peer is known to have the same bytes.
        """
        found: list[DamagedRange] = []
        self._heard_ms = now_ms = self._clock.monotonic_ms()
        for wound in self._due(peer, ends, now_ms):
            wound.asked_ms[peer] = now_ms
            found.append(DamagedRange(*wound.damage[:3]))
            if len(found) == RANGES_MAX:
                break
        return found

    def _due(self, peer: str, ends: Mapping[str, int], now_ms: int) -> Iterable[_Wound]:
        for (log, position), wound in self._wounds.items():
            end = position + wound.damage.length
            if end <= ends.get(log, 0) and now_ms - wound.asked_ms.get(peer, -ASK_MS) >= ASK_MS:
                yield wound

    def supply(self, wanted: Sequence[DamagedRange]) -> list[SoundRange]:
        """Returns what this broker has of the ranges that a peer wants."""
        found: list[SoundRange] = []
        room = REPAIR_BYTES_MAX
        for one in wanted[:RANGES_MAX]:
            data = b""
            if self._store is not None and one.log in self._store.raw.ends() and room > 0:
                try:
                    data = self._store.mender.sound(one.log, one.position, one.length, room)
                except OSError as error:
                    _log.error("a log cannot be read; check the disk", error=str(error))
                if not data:  # it may be damaged here, too
                    self.suspect(one.log, one.position, one.length)
            room -= len(data)
            found.append(SoundRange(one.log, one.position, data))
        return found

    def take(self, found: Sequence[SoundRange]) -> None:
        """Puts sound bytes of a peer in the place of damaged ones; others change nothing."""
        for one in found:
            wound = self._wounds.get((one.log, one.position))
            if wound is not None and one.data and self._store is not None:
                self._repair(self._store, wound, one.data)

    def _repair(self, store: MessageStore, wound: _Wound, data: bytes) -> None:
        damage = wound.damage
        try:
            patch = store.mender.patch(damage, data, self._epochs.of(damage.log))
            store.mender.write(patch)
        except (DataCorrupt, FormatTooNew, OSError, SyncFailed) as error:
            if str(error) != wound.trouble:
                wound.trouble = str(error)
                _log.error(
                    "a damaged place cannot be repaired with the bytes of another broker; check the disk",
                    trouble=str(error), **damage.facts(),
                )  # fmt: skip
            return
        self._repaired += 1
        _log.warning("a damaged place was repaired with another broker's bytes", **damage.facts())
        self._mended(wound, patch.end)

    def _mended(self, wound: _Wound, end: int) -> None:
        """Notes that a place is sound up to a position."""
        store, damage = self._store, wound.damage
        assert store is not None
        self._wounds.pop((damage.log, damage.position), None)
        rest = damage.position + damage.length - end
        if rest > 0:
            behind = Damage(damage.log, end, rest, damage.reason)
            self._add(behind, unindexed=wound.unindexed)
        if wound.unindexed:
            self._reindexed.add((damage.log, damage.position))
            self._stale |= store.mender.segment_paths(damage.log, damage.position)
        store.mended(damage.log, damage.position, end, [damage.queue] if damage.queue else [])


def _counted(request: FollowRequest) -> dict[str, int]:
    return {log.log: log.counted for log in request.logs}
