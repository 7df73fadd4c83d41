"""
What the members of a group say to each other, as values: any of it may be lost, late, or come twice.

    replica ── Follow: where my log ends, and in which epoch ──▶ leader
            ◀── Send: go on from here  │  Parted: your last epoch ends here  │  StaleEpoch ──
            ── DurableEnd: what is on my disk ──▶                       leader ── HandOver: lead now ──▶ replica

Used by `member`. Each frame has the epoch of its sender, and a frame of a lower epoch changes nothing. Pure.
"""

from typing import NamedTuple

from headrace_mq.cluster.record import Identity

__all__ = ["DurableEnd", "Follow", "Frame", "HandOver", "Parted", "Send", "StaleEpoch"]


class Follow(NamedTuple):
    """A replica asks for what comes after the end of its log; `last` is the epoch of its last byte."""

    epoch: int
    member: Identity
    log: str
    end: int
    last: int


class Send(NamedTuple):
    """The leader's log is equal up to `position`: bytes from there on follow; `committed` is the leader's.

    `shared`: below it, all in sync have the log; -1: that is `committed`.
    """

    epoch: int
    log: str
    position: int
    committed: int
    shared: int = -1


class Parted(NamedTuple):
    """The logs part: of the epochs up to `last`, `found` is the newest one that the leader has, and `found_end` its end.

    `end` and `last` repeat the question. `lossy`: the epoch that last began with a loss, or may have, as the leader knows; the
    member may not have read the record yet.
    """

    epoch: int
    log: str
    end: int
    last: int
    found: int
    found_end: int
    lossy: int = 0


class StaleEpoch(NamedTuple):
    """The group is in a later epoch than the sender of a frame."""

    epoch: int


class DurableEnd(NamedTuple):
    """Every byte of a log below `end` is on the member's disk, and is the leader's of this epoch."""

    epoch: int
    member: Identity
    log: str
    end: int


class HandOver(NamedTuple):
    """The leader accepts nothing, and asks a member that has everything to lead; `leaves`: it stops then.

    By the `version` of the record the leader acknowledges nothing more that this member lacks; -1: it did not say.
    """

    epoch: int
    leaves: bool = False
    version: int = -1


Frame = Follow | Send | Parted | StaleEpoch | DurableEnd | HandOver
