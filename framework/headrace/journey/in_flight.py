"""
The commands in flight: what waits in each queue of an application's command topics, who has it, and what is parked.

    bank.commands/3   17 wait, the oldest for 2.4 s, worker-2 has the queue   ─▶   Deposit 0199… to ann: in its handler, or next

An offset says up to where all are done, so a command behind it may be done, too: the event store tells. Used by `headrace
command list` and the console's verb of the same name. It changes nothing. Whether a command is stored stays unknown where the
user may not consume its topic: its id stands in the message's body.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.app import App
from headrace.domain.topics import CommandTopics, command_topic
from headrace.figures.records import ROWS_MAX, hidden_need, id_of
from headrace.journey.command_messages import backlog_of, head_of
from headrace.parked import open_databases
from headrace.settings import Settings
from headrace.stores.base import LetterState
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import GroupNotFound
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.administration import QueueLag

__all__ = ["commands_in_flight", "parked_errors"]


async def commands_in_flight(
    admin: AdminClient, app: App, settings: Settings, *, page: int = 1, rows: int = 50
) -> dict[str, Any]:
    """Returns the queues of commands, a page of the commands that wait, and what is parked, as JSON values.

    Args:
        admin: asks the broker.
        app: the application.
        settings: name its databases, whose schemas are up to date.
        page: of the commands that wait, from 1; in the order of the queues.
        rows: how many at most, up to `ROWS_MAX`.
    """
    group = command_topic(app.name)
    topics = CommandTopics(app.name, app.command_types).chosen()
    try:
        described = await admin.group(group)
        members = len(described.members)
        paused = any(not one.consume for one in described.rules)
    except GroupNotFound:  # the service has never run
        members, paused = 0, False
    queues = await backlog_of(admin, group, topics)
    now_ms = (await admin.lag(group, [])).now_ms
    total, rows = sum(one.lag for one in queues), max(1, min(ROWS_MAX, rows))
    pages = max(1, -(-total // rows))
    page = max(1, min(pages, page))
    found = await _waiting(admin, queues, (page - 1) * rows, rows)
    serializer = app.serializer_at(settings.event_store)
    try:
        async with open_databases(settings, serializer) as databases:
            letters = await databases.letters.tally()
            named = [(one.key, head.command_id) for _, one in found if (head := head_of(one))]
            done = await databases.store.find_stored(named) if named else {}
    finally:
        serializer.close()
    handlers = {kind.message_name: name for kind, name in app.definition.commands.items()}
    return {
        "group": group,
        "members": members,
        "paused": paused,
        "now_ms": now_ms,
        "queues": [_queue(one, now_ms) for one in queues],
        "hidden": next((need for _, one in found if (need := hidden_need(one))), ""),
        "waiting": [_command(lag, one, handlers, set(done)) for lag, one in found],
        "parked": [
            {"error": error, "commands": count}
            for error, count in parked_errors(letters).most_common()
        ],
        "held": sum(count for (_, state), count in letters.items() if state is LetterState.HELD),
        "page": page,
        "pages": pages,
        "total": total,
        "rows": rows,
    }


def parked_errors(letters: Mapping[tuple[str, LetterState], int]) -> Counter[str]:
    """Returns how many commands are parked by each error; those held behind them do not count.

    Args:
        letters: how many there are of each error and state.
    """
    found = Counter[str]()
    for (error, state), count in letters.items():
        if state is not LetterState.HELD:
            found[error] += count
    return found


async def _waiting(
    admin: AdminClient, queues: Sequence[QueueLag], skip: int, count: int
) -> list[tuple[QueueLag, Record]]:
    """The commands that wait from one on, in the order of the queues."""
    found: list[tuple[QueueLag, Record]] = []
    for one in queues:
        if skip >= one.lag:
            skip -= one.lag
            continue
        wanted = min(count - len(found), one.lag - skip)
        if wanted <= 0:
            break
        begin = max(one.committed, one.first) + skip
        records = await admin.read(QueueRef(one.topic, one.queue_id), begin, wanted)
        found += [(one, each) for each in records]
        skip = 0
    return found


def _queue(one: QueueLag, now_ms: int) -> dict[str, Any]:
    oldest = one.oldest_stored_at_ms if one.lag else 0
    return {
        "topic": one.topic,
        "queue_id": one.queue_id,
        "done_up_to": max(one.committed, one.first),
        "end": one.end,
        "waiting": one.lag,
        "oldest_at_ms": oldest,
        "waits_ms": max(0, now_ms - oldest) if oldest else 0,
        "member": one.member,
        "held_ms": one.held_ms,
    }


def _command(
    lag: QueueLag, record: Record, handlers: dict[str, str], done: set[tuple[str, str]]
) -> dict[str, Any]:
    head = head_of(record)
    command_id = head.command_id if head else ""
    before = record.offset - max(lag.committed, lag.first)
    state = "waits"
    if hidden_need(record):
        state = "unknown"
    elif (record.key, command_id) in done:
        state = "stored"
    elif before == 0 and lag.member:
        state = "first"
    return {
        "id": id_of(record),
        "command_id": command_id,
        "command": record.tag,
        "aggregate_id": record.key,
        "stored_at_ms": record.stored_at_ms,
        "before": before,
        "state": state,
        "member": lag.member,
        "handler": handlers.get(record.tag, ""),
    }
