"""
A group of brokers as its record has it: who leads, who is in sync, and what each broker reported.

Used by `headrace cluster` and by the console. Loads the queue only when it is asked.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headrace.errors import HeadraceError

if TYPE_CHECKING:  # loaded by the functions: the help text must not wait for the queue
    from headrace_mq.cluster.record import GroupRecord, RecordKeeper, Registration
    from headrace_mq.protocol.limits import LeaderDescription

__all__ = [
    "LOSS_MS",
    "SWITCH_S_MAX",
    "RecordPlace",
    "ack_shown",
    "failover_loss",
    "group_shown",
    "kept",
    "later",
    "look",
    "replica_shown",
]

# How long another broker may take to lead, in seconds: a second or so, and longer on a busy machine. The leader itself goes on
# after two.
SWITCH_S_MAX: Final = 15
# The longest wait for the record's database, where a person asks: on a busy machine a connection may take longer than the
# second that a leader has for it.
RECORD_MS: Final = 5_000
_LOOK_S: Final = 0.02
# From a second on, replicas do not keep up with a leader that acknowledges alone; see the alarm HeadraceFailoverMayLose.
LOSS_MS: Final = 1_000


class RecordPlace(NamedTuple):
    """Where the record of a group is: the address of its database, and the names of cluster and group."""

    url: str
    cluster: str = "default"
    group: str = "g1"


@asynccontextmanager
async def kept(place: RecordPlace) -> "AsyncIterator[RecordKeeper]":
    """Yields the record of a group, with one connection.

    Raises:
        HeadraceError: it does not answer, has no such group, or refuses a change.
    """
    from headrace_mq.cluster.records.keeper import keeper_of
    from headrace_mq.errors import MessageQueueError

    keeper = keeper_of(place.url, cluster=place.cluster, group=place.group, timeout_ms=RECORD_MS)
    try:
        yield keeper
    except MessageQueueError as error:
        raise HeadraceError(str(error)) from error
    finally:
        await keeper.aclose()


async def look(place: RecordPlace) -> "tuple[GroupRecord, list[Registration]]":
    """Returns the record and what its brokers reported.

    Raises:
        HeadraceError: as `kept`.
    """
    async with kept(place) as keeper:
        return await keeper.read(), await keeper.registered()


async def later(before: "GroupRecord", place: RecordPlace) -> "GroupRecord | None":
    """Returns the record of a later epoch, or None if none came within SWITCH_S_MAX."""
    with suppress(TimeoutError):
        async with kept(place) as record, asyncio.timeout(SWITCH_S_MAX):
            while True:
                after = await record.read()
                if after.epoch > before.epoch:
                    return after
                await asyncio.sleep(_LOOK_S)
    return None


def ack_shown(record: "GroupRecord") -> str:
    """Returns in words who must have a message before it is acknowledged."""
    from headrace_mq.cluster.record import ACK_IN_SYNC, ACK_LEADER

    if record.ack == ACK_IN_SYNC:
        return "all brokers in sync"
    if record.ack == ACK_LEADER:
        return "the leader alone, so a failover may lose messages"
    return "all brokers in sync again, once they have what the leader acknowledged alone"


def group_shown(found: "GroupRecord", known: "list[Registration]") -> dict[str, Any]:
    """Returns a group for programs."""
    return {
        "leader": found.leader,
        "epoch": found.epoch,
        "version": found.version,
        "group_id": found.group_id,
        "in_sync": sorted(one.name for one in found.in_sync),
        "unclean": found.unclean,
        "lossy": found.lossy,
        "ack": found.ack,
        "replicas": [replica_shown(found, known, one) for one in known],
    }


def replica_shown(
    record: "GroupRecord", known: "Sequence[Registration]", one: "Registration"
) -> dict[str, Any]:
    """Returns what a broker reported, for programs: when, in ms, its last epoch, the bytes of its logs, and those that it lacks."""
    from headrace_mq.cluster.operations import lacked_bytes

    return {
        "name": one.member.name,
        "in_sync": one.member in record.in_sync,
        "reported_ms": one.age_ms,
        "epoch": max((log.epoch for log in one.logs), default=0),
        "bytes": sum(log.end for log in one.logs),
        "lacks_bytes": lacked_bytes(record, known, one),
    }


def failover_loss(leads: "LeaderDescription") -> str:
    """Returns what a failover may lose now by the leader's status, in words."""
    if not leads.loss_bytes:
        return "no message"
    return f"{leads.loss_bytes:,} bytes of acknowledged messages, the oldest of {leads.loss_ms / 1_000:,.1f} s ago"
