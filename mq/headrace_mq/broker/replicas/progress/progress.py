"""
How far each replica of a leader is: when it was heard, when it had everything, who is too far behind, who may enter the set.

    FOLLOW says what the replica's disk has ─▶ `heard` ─▶ it had all of a moment ─▶ `lagging`, `entrants`

A busy replica never has all of now. So the leader remembers where its logs ended at one moment, until the replica has reached
that; then the replica has caught up by that moment.

Used by `followers`, for one epoch. It decides by the clock alone when to ask for a change; the rules are `Leadership`'s.
"""

from collections.abc import Callable, Mapping

from headrace_mq._runtime.clock import Clock
from headrace_mq._runtime.log import get_logger
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.operations import SILENT_MS
from headrace_mq.cluster.record import Identity

__all__ = ["FOLLOW_WAIT_MS_MAX", "REPLICA_LAG_MS_MAX", "ReplicaProgress"]

_log = get_logger(__name__)

# A question waits this long for something new, so that both sides know that the other one lives.
FOLLOW_WAIT_MS_MAX = 500
# A replica that has not caught up for this long leaves the set, so that producers do not wait for it any
# longer. RocketMQ: 15 s, Kafka: 30 s; here one lease.
REPLICA_LAG_MS_MAX = 3_000
# If none in the set has caught up for as long as two questions may wait, this broker may be the one that is cut off. The
# others stand after a lease and 0.2 s, and shall be first; else it would go on alone, where no client may reach it.
ALONE_LAG_MS_MAX = 4_500
# A leader that seems to be cut off looks again for this long: it may have stood still itself, and has to read what came.
CUT_OFF_MS_MIN = 1_000
# Commits wait this long for a replica that is about to enter the set: some round trips and syncs.
JOIN_MS_MAX = 1_000


class ReplicaProgress:
    """When each replica was heard, and had everything.

    Args:
        leadership: of the epoch.
        may_enter: whether a replica may enter the set, as far as what it has compacted goes.
        clock: the time.
    """

    def __init__(
        self, leadership: Leadership, may_enter: Callable[[Identity], bool], clock: Clock
    ) -> None:
        self._leadership = leadership
        self._may_enter = may_enter
        self._clock = clock
        now_ms = clock.monotonic_ms()
        # Where all logs ended at a moment that a replica has not reached yet; and the latest one that it reached.
        self._marks: dict[Identity, tuple[Mapping[str, int], int]] = {}
        self._caught_up_ms = dict.fromkeys(leadership.required, now_ms)
        self._began_ms = now_ms
        self._heard_ms = dict.fromkeys(leadership.required, now_ms)
        self._cut_off_since_ms: int | None = None
        # Members outside the set that commits wait for, with the time until which they do.
        self._joining: dict[Identity, int] = {}

    def heard(self, member: Identity, counted: Mapping[str, int], ends: Mapping[str, int]) -> None:
        """Takes over what a replica's disk has.

        Args:
            member: the replica.
            counted: by log, the position below which it has every byte.
            ends: by log, where those of the leader end now.
        """
        now = ends, self._clock.monotonic_ms()
        self._heard_ms[member] = now[1]
        # It has all of now, or all of the moment that is remembered; that moment stays until it is reached.
        for reached, since_ms in (now, self._marks.setdefault(member, now)):
            if all(end >= reached[log] for log, end in counted.items()):
                self._caught_up_ms[member] = since_ms
                self._marks[member] = now
                break

    def known(self) -> set[Identity]:
        """Returns the members that ever asked, and those that had to have everything when the epoch began."""
        return {*self._caught_up_ms, *self._marks}

    def alive(self) -> set[Identity]:
        """Returns the members that had everything a moment ago, as long as a broker may be silent that runs."""
        earliest = self._clock.monotonic_ms() - SILENT_MS
        return {one for one, at_ms in self._caught_up_ms.items() if at_ms > earliest}

    def lag_ms(self, member: Identity) -> int:
        """Returns how long ago a member had everything, in ms."""
        return self._clock.monotonic_ms() - self._caught_up_ms.get(member, self._began_ms)

    def entrants(self) -> list[Identity]:
        """Returns the members that may enter the set now: they have everything, and they are there."""
        near = self._near()
        return [member for member in self._leadership.entrants() if member in near]

    def next_to_join(self) -> Identity | None:
        """Returns a member outside the set that nearly has everything; commits wait for it, and it enters.

        It has a second for that. If it takes longer, commits wait for it no more until a lease has passed.
        """
        now_ms = self._clock.monotonic_ms()
        over = now_ms - REPLICA_LAG_MS_MAX
        self._joining = {one: until for one, until in self._joining.items() if until >= over}
        for member in sorted(self._near()):
            if self._joining.setdefault(member, now_ms + JOIN_MS_MAX) >= now_ms:
                return member
        return None

    def _near(self) -> set[Identity]:
        """The members outside the set that had everything a moment ago."""
        earliest = self._clock.monotonic_ms() - JOIN_MS_MAX
        return {
            member
            for member, caught_up_ms in self._caught_up_ms.items()
            if caught_up_ms >= earliest
            and member not in self._leadership.confirmed
            and self._may_enter(member)
        }

    def is_cut_off(self, record_heard_ms: int) -> bool:
        """Whether neither the record nor some other member of the set was heard for so long that that one may lead.

        Nothing can be acknowledged then, and clients that reach this broker would wait here instead of going to that one,
        and commit offsets that it never hears of. Where the leader acknowledges alone, it still acknowledges messages, and they
        are lost once another one leads.

        Args:
            record_heard_ms: when the record answered last.
        """
        now_ms = self._clock.monotonic_ms()
        others = self._leadership.required - {self._leadership.me}
        heard_ms = [self._heard_ms.get(one, self._began_ms) for one in others]
        if not others or now_ms - max(record_heard_ms, min(heard_ms)) <= ALONE_LAG_MS_MAX:
            self._cut_off_since_ms = None
            return False
        if self._cut_off_since_ms is None:
            self._cut_off_since_ms = now_ms
        if now_ms - self._cut_off_since_ms < CUT_OFF_MS_MIN:
            return False
        _log.error(
            "this leader reaches neither the group's record nor each replica: another one may lead, so it serves no"
            " longer; look at its network", epoch=self._leadership.epoch,
        )  # fmt: skip
        return True

    def lagging(self) -> list[Identity]:
        """Returns the members of the set that have not caught up for longer than they may; see `ALONE_LAG_MS_MAX`."""
        now_ms = self._clock.monotonic_ms()
        lag_ms = {
            member: now_ms - self._caught_up_ms.get(member, 0)
            for member in self._leadership.confirmed
            if member != self._leadership.me
        }
        alone = all(each > 2 * FOLLOW_WAIT_MS_MAX for each in lag_ms.values())
        lag_ms_max = ALONE_LAG_MS_MAX if alone else REPLICA_LAG_MS_MAX
        return sorted(member for member, each in lag_ms.items() if each > lag_ms_max)
