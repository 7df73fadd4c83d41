"""
What is to be followed, what was found, and how a message is followed that belongs to no application.

    orders:3:1042  ─▶  sent ─▶ queued ─▶ each group that reads the topic: done, waiting, retrying, a dead letter

Used by `headrace message trace` and by the console's page of the same name. It changes nothing.
"""

from dataclasses import dataclass
from typing import Any

from headrace.figures.records import id_of
from headrace.journey.groups import add_groups, add_message, add_steps
from headrace.journey.hop import Journey
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.trace.trace_events import traced
from headrace_mq.message import Record

__all__ = ["Trace", "TraceTarget", "first_message", "nothing_found", "trace_message"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTarget:
    """What is to be followed: one of a message, a command, or a version of an aggregate.

    Attributes:
        message_id: `topic:queue:offset`; empty: it is not named.
        command_id: of the command; empty: likewise.
        aggregate_id: whose command or version it is; of a command it may be left out.
        version: of the aggregate; 0: it is not named.
    """

    message_id: str = ""
    command_id: str = ""
    aggregate_id: str = ""
    version: int = 0

    def __post_init__(self) -> None:
        ways = (bool(self.message_id), bool(self.command_id), bool(self.version))
        if sum(ways) != 1 or (self.version and not self.aggregate_id):
            raise ValueError(
                "name one thing to follow: a message by its id, a command by its id (with its aggregate, if you know"
                " it), or an aggregate and a version"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What was found.

    Attributes:
        journey: the hops; none: nothing is known of it.
        message_id: of the message that was followed, or that brought the command; empty: it is gone.
        record: that message; None: it is gone.
        command: id, name, aggregate and chain of the command; None: it is no command of the application.
        missing: why nothing was found; empty: something was.
    """

    journey: Journey
    message_id: str = ""
    record: Record | None = None
    command: dict[str, Any] | None = None
    missing: str = ""

    @property
    def plain(self) -> dict[str, Any]:
        """What was found as JSON values."""
        hops = self.journey.plain()
        return {
            "id": self.message_id,
            "command": self.command,
            "hops": hops,
            "stands": [one["number"] for one in hops if one["state"] in {"waits", "stopped"}],
            "missing": self.missing,
        }


async def trace_message(admin: AdminClient, message_id: str) -> Trace:
    """Follows a message through the groups that read its topic.

    Args:
        admin: asks the broker.
        message_id: `topic:queue:offset`; of a retry or a dead letter, the message that failed is followed.

    Raises:
        ValueError: it is no message id.
        QueueNotFound: there is no such topic or queue.
    """
    record = await first_message(admin, message_id)
    journey = Journey()
    if record is None:
        await add_steps(admin, journey, message_id)
        missing = f"there is no message {message_id}, and no trace of it"
        return Trace(
            journey=journey, message_id=message_id, missing="" if journey.hops else missing
        )
    queued = await add_message(admin, journey, record)
    await add_groups(admin, journey, record, queued)
    return Trace(journey=journey, message_id=id_of(record), record=record)


async def first_message(admin: AdminClient, message_id: str) -> Record | None:
    """Returns the message of an id; of a copy that failed the one that it was at first, if that is kept.

    Args:
        admin: asks the broker.
        message_id: `topic:queue:offset`.

    Raises:
        ValueError: it is no message id.
        QueueNotFound: there is no such topic or queue.
    """
    record = await admin.message(message_id)
    if record is not None and (origin := traced(record).message_id) != message_id:
        return await admin.message(origin) or record
    return record


def nothing_found(sentence: str) -> Trace:
    """Returns a trace without hops, and why there are none."""
    return Trace(journey=Journey(), missing=sentence)
