"""
Commands on their way through the broker: what a message of a command topic says of its command, and where it is found.

    bank.commands:3:1042  ─▶  Deposit 0199… to account ann, in the chain of 0198…

Used by `command_trace` and by the list of commands in flight. Bodies are not decoded further, so no field of a command is read.
"""

import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import msgspec

from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import TopicNotFound
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.administration import QueueLag

__all__ = [
    "CLOCKS_MS",
    "FOUND_MAX",
    "CommandHead",
    "backlog_of",
    "begun_ms",
    "command_messages",
    "find_waiting",
    "head_of",
]

# Messages of an aggregate that are looked at for those of one command.
FOUND_MAX: Final = 1_000
# Messages that wait which are searched for a command of which the aggregate is not known.
SEARCHED_WAITING_MAX: Final = 10_000
# Clocks of clients and of the broker differ by less.
CLOCKS_MS: Final = 60_000
# A command that was stored had been sent at most so long before: topics of commands keep messages for three days.
_KEPT: Final = timedelta(days=7)
_UUID_TIME: Final = 7


class CommandHead(msgspec.Struct, frozen=True, gc=False):
    """What the body of a command's message says of it, without its own fields.

    Attributes:
        name: registered name of its class.
        command_id: its id.
        correlation_id: the first command of its chain.
    """

    name: str
    command_id: str
    correlation_id: str


_decode = msgspec.json.Decoder(CommandHead).decode


def head_of(record: Record) -> CommandHead | None:
    """Returns what a message says of its command; None: it holds none that can be read."""
    try:
        return _decode(record.body)
    except msgspec.MsgspecError:
        return None


def begun_ms(command_id: str, stored: datetime | None = None) -> int:
    """Returns from when on messages of a command may be in its topic, in ms since 1970 UTC.

    Args:
        command_id: an id that was made by the framework says when.
        stored: when what the command did was recorded; None: not yet.
    """
    try:
        found = uuid.UUID(command_id)
    except ValueError:
        pass
    else:
        if found.version == _UUID_TIME:
            return max(0, (found.int >> 80) - CLOCKS_MS)
    return 0 if stored is None else max(0, round((stored - _KEPT).timestamp() * 1_000))


async def command_messages(
    admin: AdminClient,
    topics: Sequence[str],
    aggregate_id: str,
    command_id: str,
    stored: datetime | None = None,
) -> list[Record]:
    """Returns the messages that brought a command, the oldest first; none where they are gone by age.

    Args:
        admin: asks the broker.
        topics: of the application's commands.
        aggregate_id: whose command it is.
        command_id: its id.
        stored: when what it did was recorded; None: not yet.
    """
    until = {}
    if stored is not None:
        until = {"to_ms": round(stored.timestamp() * 1_000) + CLOCKS_MS}
    found: list[Record] = []
    for topic in topics:
        try:
            records = await admin.find(
                topic,
                aggregate_id,
                from_ms=begun_ms(command_id, stored),
                limit=FOUND_MAX,
                **until,
            )
        except TopicNotFound:
            continue
        for one in records:
            head = head_of(one)
            if head is not None and head.command_id == command_id:
                found.append(one)
    return sorted(found, key=lambda one: one.stored_at_ms)


async def backlog_of(admin: AdminClient, group: str, topics: Sequence[str]) -> list[QueueLag]:
    """Returns how far the command service is in each queue of its topics; of topics that are not there, nothing.

    Args:
        admin: asks the broker.
        group: of the command service.
        topics: of the application's commands.
    """
    found: list[QueueLag] = []
    for topic in topics:
        with suppress(TopicNotFound):
            found += (await admin.lag(group, [topic])).queues
    return found


async def find_waiting(
    admin: AdminClient, group: str, topics: Sequence[str], command_id: str
) -> Record | None:
    """Returns the message of a command among the first that wait; None: it is not there.

    Args:
        admin: asks the broker.
        group: of the command service.
        topics: of the application's commands.
        command_id: of the command.
    """
    left = SEARCHED_WAITING_MAX
    for one in await backlog_of(admin, group, topics):
        offset = max(one.committed, one.first)
        end = min(one.end, offset + left)
        while offset < end:
            # One answer is in memory at a time: bodies may have megabytes.
            records, behind = await admin.page(QueueRef(one.topic, one.queue_id), offset)
            for record in records:
                head = head_of(record)
                if record.offset < end and head is not None and head.command_id == command_id:
                    return record
            # What was deleted or damaged meanwhile is no reason to ask for ever.
            if behind <= offset:
                break
            offset, left = behind, left - (min(behind, end) - offset)
    return None
