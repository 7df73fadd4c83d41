"""
What an operator may do to a group from outside: take a broker out of it.

    a broker reports now and then ─▶ Registration ─▶ what `headrace cluster` lists, and whether a broker still runs

Used by the command line and by the simulation, which send the proposals to the record. Pure: ages are passed in, by the clock
of the record's database. An operator may let a member leave the set, as its leader may: the others have all that
was acknowledged. Only a leader, which compares logs, may let one enter.
"""

from collections.abc import Sequence

from headrace_mq.cluster.record import GroupRecord, Proposal, Registration
from headrace_mq.errors import MessageQueueError

__all__ = ["REPORT_MS", "SILENT_MS", "is_silent", "removal"]

# How often a broker reports: one statement of one row.
REPORT_MS = 5_000
# After three reports that are missing a broker does not run any more, or does not reach the record.
SILENT_MS = 15_000


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
        MessageQueueError: the group does not know it, it leads, or it still runs; the sentence says what to do.
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
    return Proposal(record.version, record.epoch, record.leader, record.in_sync - leaving)
