"""
The damaged places of a broker's logs, and how they get sound bytes from another broker of the group.

    found: a reader, a scrub, a start, a replica that refused bytes
      └─▶ wanted ─(FOLLOW, either way)─▶ the peer's sound bytes ─▶ checked ─▶ written in place by a thread ─▶ readers have them again
             └─▶ no peer has them in WAIT_MS_MAX: readers leave them out; it asks again every ASK_MS

A leader asks replicas that it has confirmed up to there, and a replica asks its leader for what that one has confirmed.
Used by `followers` and `replica`, through `StoreLogs`; the store's `Mender` checks and writes.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from headrace_mq._net.client_connection import ANSWER_BYTES_MAX
from headrace_mq._runtime.clock import Clock, SystemClock
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.bodies import (
    DamagedRange,
    FollowAnswer,
    FollowRequest,
    SoundRange,
)
from headrace_mq.broker.replicas.repairs.wounds import WAIT_MS_MAX, Place, Wound
from headrace_mq.errors import DataCorrupt, FormatTooNew, StoreReadOnly
from headrace_mq.message import QueueRef
from headrace_mq.store.log.commit_log import COMPACT
from headrace_mq.store.message_store import Damage, MessageStore
from headrace_mq.store.replication.epochs import EpochFile
from headrace_mq.store.replication.mend import Mender, remove_indexes

__all__ = ["ASK_MS", "RANGES_MAX", "REPAIR_BYTES_MAX", "WAIT_MS_MAX", "RepairFigures", "Repairs"]

_log = get_logger(__name__)

# A peer is asked again for a place after this: it may have the bytes by now, or its disk may be mended.
ASK_MS = 10_000
# Bytes in one question or answer, or else one larger batch: as many as a leader sends of a log.
REPAIR_BYTES_MAX = 4 << 20
# Places in one question. Each costs a read at the peer.
RANGES_MAX = 16
# Damaged places that are remembered: a disk that has more must be replaced.
PLACES_MAX = 10_000
# A leader hands over for the sake of repaired messages once in this time: clients wait while it does.
START_MS = 60_000
# A peer that was not heard for as long as this mends nothing now.
_HEARD_MS_MAX = 3_000


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
        self._wounds: dict[Place, Wound] = {}
        # Since when each peer is there, and when it was heard last; and what it was asked for, and has not answered.
        self._peers: dict[str, tuple[int, int]] = {}
        self._open: dict[str, list[Place]] = {}
        self._writing: set[asyncio.Future[None]] = set()
        self._repaired = 0
        # Segments whose bytes are sound again, but whose indexes leave them out; and the places for which that was done,
        # because a start may leave out sound bytes as well.
        self._stale: set[Path] = set()
        self._reindexed: set[Place] = set()
        # What this start left out, and was repaired since: each place with its end.
        self._unread: dict[Place, int] = {}
        # Where the logs of each replica end.
        self._ends: dict[str, dict[str, int]] = {}
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
        peers = self._heard(now_ms)
        return any(
            wound.unindexed and (wound.is_written or now_ms < wound.until_ms(peers))
            for wound in self._wounds.values()
        )

    def sound_until(self, log: str, start: int = 0) -> int | None:
        """Returns where a log may yet get messages that it lacks: from another broker, or at the next start.

        None: nowhere. A place counts until a peer is there, and each that is has no bytes for it: it said so, or its log ends
        before them after `ASK_MS`, because it cannot copy what is damaged here.

        Args:
            log: its name.
            start: a place that ends here or before does not count.
        """
        peers = self._heard(self._clock.monotonic_ms())
        ends = self._unread | {
            place: place[1] + wound.damage.length
            for place, wound in self._wounds.items()
            if not peers or wound.until_ms(self._hopeful(place, wound, peers))
        }
        at = [at for (name, at), end in ends.items() if name == log and end > start]
        return min((one for one in at if not self._is_gone(log, one)), default=None)

    def _hopeful(self, place: Place, wound: Wound, peers: Mapping[str, int]) -> dict[str, int]:
        """The peers but for those whose logs have ended before a place for long."""
        (log, position), late = place, self._clock.monotonic_ms() - ASK_MS
        return {
            peer: since_ms
            for peer, since_ms in peers.items()
            if max(since_ms, wound.found_ms) > late
            or self._ends.get(peer, {}).get(log, position + 1) > position
        }

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
            wound = self._add(damage, unindexed=True)
            try:
                if not store.mender.damage_in(*damage[:3]):
                    # An earlier process wrote sound bytes, but did not come to open the store again.
                    self._mended(wound, damage.position + damage.length)
            except (OSError, FormatTooNew):
                continue

    def closed(self) -> None:
        """Forgets the store that is closed, and removes indexes that leave out what was repaired.

        Raises:
            OSError: they are still there.
        """
        store, self._store = self._store, None
        stale, self._stale = self._stale, set()
        self._unread.clear()
        if store is not None:
            remove_indexes(store.mender.files, stale)

    def _add(self, damage: Damage, *, unindexed: bool = False) -> Wound:
        place = damage.log, damage.position
        wound = self._wounds.get(place)
        if wound is None:
            wound = Wound(damage, self._clock.monotonic_ms(), unindexed=unindexed)
            if len(self._wounds) < PLACES_MAX:
                self._wounds[place] = wound
        return wound

    def _met(self, damage: Damage) -> bool:
        """Whether a reader that met damage shall wait for sound bytes."""
        if self._store is None or self._is_compacted(damage.log, damage.position):
            return False
        now_ms = self._clock.monotonic_ms()
        place = damage.log, damage.position
        is_new = place not in self._wounds
        wound = self._add(damage)
        left_ms = wound.until_ms(self._heard(now_ms)) - now_ms
        if left_ms <= 0 or place not in self._wounds:  # too many are remembered already
            return False
        if is_new:
            _log.warning("a stored batch is damaged; another broker is asked", **damage.facts())
        if damage.queue is not None:
            wound.queues.add(damage.queue)
        if not wound.wakes:
            wound.wakes = True
            asyncio.get_running_loop().call_later(left_ms / 1_000, self._wake, wound)
        return True

    def _heard(self, now_ms: int) -> dict[str, int]:
        """The peers that were heard a moment ago, and since when each of them is there."""
        return {
            peer: since_ms
            for peer, (since_ms, heard_ms) in self._peers.items()
            if now_ms - heard_ms < _HEARD_MS_MAX
        }

    def _note(self, peer: str) -> int:
        """Notes that a peer is heard now; returns the time."""
        now_ms = self._clock.monotonic_ms()
        since_ms, heard_ms = self._peers.get(peer, (now_ms, now_ms))
        if now_ms - heard_ms >= _HEARD_MS_MAX:
            since_ms = now_ms
        self._peers[peer] = since_ms, now_ms
        return now_ms

    def _wake(self, wound: Wound) -> None:
        """Lets readers come back for what is damaged: it came, or they leave it out."""
        wound.wakes = False
        self._tell(wound)

    def _tell(self, wound: Wound) -> None:
        if self._store is not None and self._store.on_visible is not None and wound.queues:
            self._store.on_visible([QueueRef(*queue) for queue in wound.queues])

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
        """Asks again for all that is damaged, because a term begins: its peers are others, and are heard from now on."""
        now_ms = self._clock.monotonic_ms()
        for wound in self._wounds.values():
            wound.renew(now_ms)
        for known in (self._peers, self._open, self._ends):
            known.clear()

    async def settled(self) -> None:
        """Returns when no sound bytes are being written."""
        while self._writing:
            await asyncio.wait(self._writing)

    # What a leader hears from a replica, and answers it.

    def hear(self, request: FollowRequest) -> None:
        """Takes a replica's sound bytes, and looks at what came damaged to it."""
        for one in request.refused:
            self.suspect(one.log, one.position, one.length)
            if self._is_compacted(one.log, one.position):
                _log.error(
                    "a replica got a compacted segment of this broker damaged, and cannot copy it; check this broker's"
                    " disk, and let another broker in sync lead",
                    replica=request.member, log=one.log, position=one.position,
                )  # fmt: skip
        self.take(request.found, request.member)

    def heard(self, request: FollowRequest) -> None:
        """Notes that a replica is there, and that it may have what the start left out."""
        now_ms, ends = self._note(request.member), _counted(request)
        self._ends[request.member] = {log.log: log.end for log in request.logs}
        for (log, position), wound in self._wounds.items():
            if wound.unindexed and position + wound.damage.length <= ends.get(log, 0):
                wound.hoped_ms.setdefault(request.member, now_ms)

    def wants(self, request: FollowRequest) -> bool:
        """Whether the answer to a replica asks it for anything; that is, for what this leader has confirmed to it."""
        return bool(self._due(request.member, _counted(request), self._clock.monotonic_ms(), 1))

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
        now_ms = self._note(peer)
        due = self._due(peer, ends, now_ms, RANGES_MAX)
        for wound in due:
            if peer not in wound.asked_ms:
                wound.hoped_ms[peer] = now_ms
            wound.asked_ms[peer] = now_ms
        if due:
            self._open[peer] = [(wound.damage.log, wound.damage.position) for wound in due]
        return [DamagedRange(*wound.damage[:3]) for wound in due]

    def _due(self, peer: str, ends: Mapping[str, int], now_ms: int, most: int) -> list[Wound]:
        """Returns what to ask a peer for, and forgets what the log does not hold any more as it was written."""
        due: list[Wound] = []
        gone: list[Place] = []
        for place, wound in self._wounds.items():
            if wound.is_written or now_ms - wound.asked_ms.get(peer, -ASK_MS) < ASK_MS:
                continue
            if self._is_gone(*place):
                gone.append(place)
            elif place[1] + wound.damage.length <= ends.get(place[0], 0):
                due.append(wound)
                if len(due) == most:
                    break
        for place in gone:
            self._tell(self._wounds.pop(place))
        return due

    def _is_gone(self, log: str, position: int) -> bool:
        """Whether a place was deleted or compacted."""
        store = self._store
        return store is not None and (
            position < store.raw.begin(log) or store.mender.is_compacted(log, position)
        )

    def supply(
        self, wanted: Sequence[DamagedRange], bytes_max: int = ANSWER_BYTES_MAX
    ) -> list[SoundRange]:
        """Returns what this broker has of the ranges that a peer wants, from the first one on, as many as fit.

        The peer asks again soon for those that have no place in it.

        Args:
            wanted: by the peer.
            bytes_max: what the peer takes; one batch may be larger than `REPAIR_BYTES_MAX`, but not than this.
        """
        found: list[SoundRange] = []
        room = min(REPAIR_BYTES_MAX, bytes_max)
        for one in wanted[:RANGES_MAX]:
            data = b""
            if self._store is not None and one.log in self._store.raw.ends():
                try:
                    data = self._store.mender.sound(one.log, one.position, one.length, max(room, 0))
                except OSError as error:
                    _log.error("a log cannot be read; check the disk", error=str(error))
                if not data:  # it may be damaged here, too
                    self.suspect(one.log, one.position, one.length)
            if found and len(data) > room:
                break
            if len(data) > bytes_max:
                _log.error(
                    "a batch is too large to repair another broker's copy; raise its frame_bytes_max",
                    log=one.log, position=one.position, bytes=len(data), bytes_max=bytes_max,
                )  # fmt: skip
                data = b""
            room -= len(data)
            compacted = not data and self._is_compacted(one.log, one.position)
            found.append(SoundRange(one.log, one.position, data, compacted))
        return found

    def _is_compacted(self, log: str, position: int) -> bool:
        store = self._store
        return (
            store is not None
            and log in store.raw.ends()
            and store.mender.is_compacted(log, position)
        )

    def must_copy(self, peer: str) -> bool:
        """Whether a place of the compacted topics' log is damaged, and a peer has its messages in compacted segments alone."""
        return any(
            peer in wound.compacted and not self._is_gone(*place)
            for place, wound in self._wounds.items()
        )

    def take(self, found: Sequence[SoundRange], peer: str = "") -> None:
        """Begins to write sound bytes of a peer in the place of damaged ones; others change nothing.

        Args:
            found: by the peer.
            peer: its name. It is asked again soon for what it was asked for, and what it did not come to.
        """
        for one in found:
            wound = self._wounds.get((one.log, one.position))
            if wound is None or self._store is None or wound.is_written:
                continue
            if one.compacted:
                wound.compacted.add(peer)
            if not one.data or not self._repair(self._store, wound, one.data, peer):
                self._has_none(wound, peer)
        if found:
            answered = {(one.log, one.position) for one in found}
            for place in self._open.pop(peer, ()):
                if place not in answered and place in self._wounds:
                    self._wounds[place].asked_ms.pop(peer, None)

    def _has_none(self, wound: Wound, peer: str) -> None:
        """Notes that a peer has no sound bytes for a place; readers go on if none is left that may have some."""
        is_new = peer not in wound.empty
        wound.empty.add(peer)
        if is_new and wound.damage.log == COMPACT and not wound.trouble:
            _log.error(
                "the log of compacted topics is damaged here, and another broker has no such bytes: it may have compacted them."
                " A replica then copies this log again; if this broker leads, let another one lead: `headrace cluster switchover`",
                peer=peer, **wound.damage.facts(),
            )  # fmt: skip
        if is_new and not wound.until_ms(self._heard(self._clock.monotonic_ms())):
            self._tell(wound)

    def _repair(self, store: MessageStore, wound: Wound, data: bytes, peer: str) -> bool:
        """Begins to write a peer's bytes; returns whether they are of any use."""
        try:
            patch = store.mender.patch(wound.damage, data, self._epochs.of(wound.damage.log))
            writing = store.mender.begin(patch)
        except (DataCorrupt, FormatTooNew, OSError, StoreReadOnly) as error:
            _say_trouble(wound, str(error))
            return False
        wound.is_written = True
        self._writing.add(writing)
        writing.add_done_callback(partial(self._written, store, wound, patch.end, peer))
        return True

    def _written(
        self, store: MessageStore, wound: Wound, end: int, peer: str, done: "asyncio.Future[None]"
    ) -> None:
        """Notes what became of a write; a store that was closed since finds it at its next start."""
        self._writing.discard(done)
        wound.is_written = False
        if done.cancelled():
            return
        if (error := done.exception()) is not None:
            _say_trouble(wound, str(error))
            self._has_none(wound, peer)
            return
        self._repaired += 1
        _log.warning(
            "a damaged place was repaired with another broker's bytes", **wound.damage.facts()
        )
        if self._store is store:
            self._mended(wound, end)

    def _mended(self, wound: Wound, end: int) -> None:
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
            self._unread[damage.log, damage.position] = end
            self._stale |= store.mender.segment_paths(damage.log, damage.position)
        store.mended(damage.log, damage.position, end, [QueueRef(*one) for one in wound.queues])


def _counted(request: FollowRequest) -> dict[str, int]:
    return {log.log: log.counted for log in request.logs}


def _say_trouble(wound: Wound, trouble: str) -> None:
    """Says once why bytes were not taken."""
    if trouble != wound.trouble:
        wound.trouble = trouble
        _log.error(
            "a damaged place cannot be repaired with the bytes of another broker; check the disk",
            trouble=trouble, **wound.damage.facts(),
        )  # fmt: skip
