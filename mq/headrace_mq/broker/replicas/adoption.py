"""
How a broker that ran alone becomes the first one of a group, with the messages that it has.

    record made, with this disk alone in sync ─▶ `epochs`: all that is there has one epoch ─▶ elected in the next one

Each step is durable before the next, and none changes a message. A crash before the first step, or between the two, leaves
a folder that starts with the group's record, or alone; after the second it starts with the record. Brokers with empty folders then copy
all of it, as they copy any log.

A folder without messages may still hold topics, users or limits. It founds a group in the same way; a group of others would
replace them by its own, so it is refused there.

Replicas take no damaged byte. So every message is checked before a group is founded on it: else no other broker would ever enter.

The folder of a broker that was taken out of a group, whose group.json was removed, is such a folder as well. It keeps the
epochs that it has.

Used by `replicated_broker` at each start; the rule is `founding`'s.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from headrace_mq._runtime.files import SystemFiles
from headrace_mq._runtime.log import get_logger
from headrace_mq.broker.replicas.store_logs import StoreLogs
from headrace_mq.cluster.election import founding
from headrace_mq.cluster.record import GroupRecord, Identity, RecordKeeper, Refused
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.store.check.inspection import inspect
from headrace_mq.store.replication.epochs import EPOCHS_NAME
from headrace_mq.store.segment.segment import SEGMENT_SUFFIX

__all__ = ["adopt"]

_log = get_logger(__name__)


async def adopt(
    logs: StoreLogs,
    me: Identity,
    keeper: RecordKeeper,
    *,
    epoch: int,
    seen: GroupRecord | None,
    own: Sequence[str],
    directory: Path,
) -> None:
    """Gives the messages of a broker that ran alone, or was taken out of a group, to the group that it founds; does nothing for any other folder.

    Args:
        logs: of the open store.
        me: the broker.
        keeper: of the group's record.
        epoch: no message of the store is of a later one.
        seen: the newest record that this broker ever saw.
        own: what the folder holds besides messages: topics, users, limits, an archive.
        directory: of the store; for sentences.

    Raises:
        RecordUnavailable: the record does not answer; nothing is changed, or half of it: start again.
        DataCorrupt: the folder is one of a group, and lacks its epochs.
        MessageQueueError: the record is of other brokers, or a log is damaged.
    """
    held = [name for name, end in logs.ends().items() if end > 0]
    if own and not held and seen is None:
        # A group of others would replace them by its own.
        founding(me, await keeper.create(me, [me], epoch), 0, holds=" and ".join(own))
    # A broker that copies has seen the record before; without one seen, the folder was taken out of its group.
    if not held or (logs.epochs.is_there and seen is not None):
        return
    if seen is not None:
        raise DataCorrupt(
            f"{directory / EPOCHS_NAME} is missing, though this broker is one of a group; start it with an empty folder,"
            " and it copies everything again"
        )
    if not logs.epochs.is_there:
        await asyncio.to_thread(_check, directory)
    record = await keeper.create(me, [me], epoch)
    proposal = founding(me, record, epoch)
    if proposal is not None:
        try:
            await keeper.propose(proposal, record.group_id)
        except Refused as refused:
            founding(me, refused.record, 0)
            raise MessageQueueError(
                f"{refused}; another process starts with the same folder: stop it, and start again"
            ) from refused
    if not logs.epochs.is_there:
        logs.epochs.adopt(epoch, held)
    _log.warning("the messages of this broker are those of its group from now on", epoch=epoch)


def _check(directory: Path) -> None:
    """Raises DataCorrupt where a message of a log is damaged; reads all of them."""
    _log.info(
        "all messages are checked before a group is founded on them", directory=str(directory)
    )
    report = inspect(SystemFiles(), directory, {})
    damaged = [
        one for one in report.findings if one.is_damage and one.file.endswith(SEGMENT_SUFFIX)
    ]
    if damaged:
        first = damaged[0]
        raise DataCorrupt(
            f"the log in {directory} has {len(damaged)} damaged places, the first in {first.file} ({first.reason}), and replicas take"
            f" no damaged message; restore it from a backup, or run this broker without --record. `headrace store check {directory}`"
            " shows what is damaged"
        )
