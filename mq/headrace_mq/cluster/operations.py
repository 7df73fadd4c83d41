"""
What an operator may do to a group from outside: remove a broker, promote one where none is in sync, choose who acknowledges.

    a broker reports now and then ─▶ Registration ─▶ what `headrace cluster` lists, and whether a broker still runs

Used by the command line and by the simulation, which send the proposals to the record. Pure: ages are passed in, by the clock
of the record's database. An operator may let a member leave the set, as its leader may: the others have all that
was acknowledged. Only a leader, which compares logs, may let one enter.

A promotion breaks that: its broker lacks messages that were acknowledged. So it is made only while all in sync are silent, its epoch
stands in the record until an operator settles it, and the others cut what the new leader does not have when they come back.
"""

from collections.abc import Sequence
from typing import NamedTuple

from headrace_mq.cluster.record import (
    ACK_IN_SYNC,
    ACK_LEADER,
    ACK_TO_IN_SYNC,
    GroupRecord,
    Identity,
    Proposal,
    Registration,
)
from headrace_mq.errors import MessageQueueError

__all__ = [
    "REPORT_MS",
    "SILENT_MS",
    "Lack",
    "acknowledgement",
    "is_silent",
    "lacked_bytes",
    "losses",
    "promotion",
    "removal",
    "settlement",
]

# How often a broker reports: one statement of one row.
REPORT_MS = 5_000
# The least level of a broker that knows that a leader may acknowledge alone.
_KNOWS_ACK = 1
# After three reports that are missing a broker does not run any more, or does not reach the record.
SILENT_MS = 15_000


class Lack(NamedTuple):
    """What a broker had by its last report that one to be promoted lacks, in bytes of its logs.

    `or_more`: the last epochs of a log differ, so the logs may have parted earlier than where the shorter one ends.
    """

    member: Identity
    lost_bytes: int
    or_more: bool


def is_silent(known: Registration) -> bool:
    """Whether a broker has not reported for so long that it does not run."""
    return known.age_ms >= SILENT_MS


def removal(record: GroupRecord, known: Sequence[Registration], name: str) -> Proposal | None:
    """Returns the change that takes a broker out of the set; None if it is out, and only its report is to be dropped.

    Args:
        record: as it is.
        known: what brokers of the group reported.
        name: of the broker.

    Raises:
        MessageQueueError: the group does not know it, it leads, or it still runs, or the leader does not: what was
            acknowledged may be on this broker alone. The sentence says what to do.
    """
    leaving = frozenset(one for one in record.in_sync if one.name == name)
    report = next((one for one in known if one.member.name == name), None)
    if name == record.leader:
        raise MessageQueueError(
            f"{name} leads the group, so it cannot be removed; let another one lead with `headrace cluster switchover`,"
            " stop it, and repeat this"
        )
    if not leaving and report is None:
        names = {one.name for one in record.in_sync} | {one.member.name for one in known}
        raise MessageQueueError(f"the group has no broker {name}; it has {' '.join(sorted(names))}")
    if report is not None and not is_silent(report):
        raise MessageQueueError(
            f"{name} still runs: it reported {report.age_ms // 1_000} s ago. Stop it, and repeat this {SILENT_MS // 1_000} s"
            " later; a broker that runs would enter the group again"
        )
    if not leaving:
        return None
    _require_leader(record, known, name)
    return Proposal(
        record.version, record.epoch, record.leader, record.in_sync - leaving, record.unclean
    )


def _require_leader(record: GroupRecord, known: Sequence[Registration], name: str) -> None:
    """Raises MessageQueueError where the leader, with the disk that is in sync, does not run."""
    leader = {one for one in record.in_sync if one.name == record.leader}
    if not any(one.member in leader and not is_silent(one) for one in known):
        raise MessageQueueError(
            f"the leader {record.leader} has not reported within {SILENT_MS // 1_000} s, so {name} may be the last broker that"
            " has every message; start the leader, or wait until another one leads, and repeat this. If none in sync comes"
            " back, see `headrace cluster promote`"
        )


def promotion(record: GroupRecord, known: Sequence[Registration], name: str) -> Proposal:
    """Returns the change by which a broker that is not in sync leads, alone in the set: messages are lost.

    The broker stands by itself for the epoch after that, as one in sync does.

    Args:
        record: as it is.
        known: what brokers of the group reported.
        name: of the broker.

    Raises:
        MessageQueueError: it does not run, or one in sync runs; the sentence says what to do.
    """
    report = next((one for one in known if one.member.name == name), None)
    if report is None or is_silent(report):
        said = (
            "has never reported" if report is None else f"reported {report.age_ms // 1_000} s ago"
        )
        raise MessageQueueError(
            f"{name} {said}, so it does not run, or does not reach the record; start it first, with --record"
        )
    for one in known:
        if one.member in record.in_sync and not is_silent(one):
            raise MessageQueueError(
                f"{one.member.name} is in sync and reported {one.age_ms // 1_000} s ago, so no message need be lost: it"
                f" leads, or will. If it does not run any more, repeat this {SILENT_MS // 1_000} s later"
            )
    epoch = record.epoch + 1
    return Proposal(record.version, epoch, name, frozenset({report.member}), epoch)


def losses(record: GroupRecord, known: Sequence[Registration], name: str) -> list[Lack]:
    """Returns for each broker in sync that reported, what a promotion loses of its messages.

    Args:
        record: as it is.
        known: what brokers of the group reported; a little more may have come after a report.
        name: of the broker to be promoted; it reported.
    """
    chosen = next(one for one in known if one.member.name == name)
    has = {place.log: place for place in chosen.logs}
    found = []
    for one in known:
        if one.member not in record.in_sync or one.member == chosen.member:
            continue
        lost, or_more = 0, False
        for place in one.logs:
            end, epoch = (has[place.log].end, has[place.log].epoch) if place.log in has else (0, 0)
            lost += max(0, place.end - end)
            or_more |= place.epoch != epoch
        found.append(Lack(one.member, lost, or_more))
    return found


def lacked_bytes(
    record: GroupRecord, known: Sequence[Registration], one: Registration
) -> int | None:
    """Returns how many bytes a broker lacks of what those in sync reported: what is lost if it is promoted.

    Args:
        record: as it is.
        known: what brokers of the group reported.
        one: of these; where all in sync acknowledge, a broker in sync lacks nothing that was acknowledged.

    Returns the bytes; None if no broker in sync has reported. Where the leader acknowledges alone, one in sync may lack some as
    well; reports are of different moments, so this is not exact then.
    """
    leads = one.member.name == record.leader
    if one.member in record.in_sync and (leads or record.ack == ACK_IN_SYNC):
        return 0
    return max((each.lost_bytes for each in losses(record, known, one.member.name)), default=None)


def settlement(record: GroupRecord) -> Proposal | None:
    """Returns the change that takes the mark of a promotion away; None if there is none."""
    if not record.unclean:
        return None
    return Proposal(record.version, record.epoch, record.leader, record.in_sync)


def acknowledgement(
    record: GroupRecord, known: Sequence[Registration], wanted: str
) -> Proposal | None:
    """Returns the change by which the leader acknowledges alone, or with all in sync again; None if it does, or soon will.

    The way back has two steps: the leader first sees that all in sync have what it acknowledged alone (`ACK_TO_IN_SYNC`),
    then it ends the step by itself. Until then an election may lose messages.

    Args:
        record: as it is.
        known: what brokers of the group reported.
        wanted: `ACK_LEADER` or `ACK_IN_SYNC`.

    Raises:
        MessageQueueError: a broker of the group is of an earlier version, which knows no leader that acknowledges alone;
            or `wanted` is neither. The sentence says what to do.
    """
    if wanted not in {ACK_LEADER, ACK_IN_SYNC}:
        raise MessageQueueError(
            f"a group has no acknowledgement {wanted!r}; write {ACK_LEADER} or {ACK_IN_SYNC}"
        )
    if wanted == record.ack or (wanted == ACK_IN_SYNC and record.ack == ACK_TO_IN_SYNC):
        return None
    if wanted == ACK_LEADER:
        _require_level(record, known)
    ack = wanted if wanted == ACK_LEADER else ACK_TO_IN_SYNC
    return Proposal(
        record.version, record.epoch, record.leader, record.in_sync, record.unclean, ack
    )


def _require_level(record: GroupRecord, known: Sequence[Registration]) -> None:
    """Raises MessageQueueError where a broker of the group knows no leader that acknowledges alone."""
    able = {one.member.name for one in known if one.level >= _KNOWS_ACK}
    names = {one.name for one in record.in_sync} | {one.member.name for one in known}
    earlier = sorted(names - able)
    if earlier:
        raise MessageQueueError(
            f"of these brokers it is not known that they are of this version: {' '.join(earlier)}. An earlier one does not note that"
            f" an election may have lost messages; start them with this version, and repeat this {REPORT_MS // 1_000} s later, or"
            " take those that will not come back out of the group with `headrace cluster remove`"
        )
