"""
What the broker knows of a message: who sent it, where it stands, and how far each group of its topic is with it.

    offset of the group behind it ─▶ done      members, and others before it ─▶ waits its turn
    no member, or paused ─▶ stopped            in the retry topic ─▶ retrying     a dead letter ─▶ stopped

Used by `trace`. Consumers that trace messages tell more, with times: delivered, begun, acknowledged, failed.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any, Final

from headrace.figures.records import id_of, sender_of
from headrace.journey.hop import Journey, page_of
from headrace_mq.admin.client import AdminClient
from headrace_mq.client.retry_headers import Origin, dead_letter_topic, origin_of, retry_topic
from headrace_mq.client.trace.trace_events import TraceStep
from headrace_mq.errors import (
    BrokerError,
    GroupNotFound,
    NotPermitted,
    RequestTimeout,
    TopicNotFound,
)
from headrace_mq.message import Record
from headrace_mq.protocol.administration import GroupDescription, QueueLag

__all__ = [
    "ASKED_MS",
    "GROUPS_ASKED_MAX",
    "NO_ANSWER",
    "add_group",
    "add_groups",
    "add_message",
    "add_steps",
    "standing_of",
    "steps_of",
    "stopped",
    "unanswered",
]

# Groups that are asked which topics they read: one request each.
GROUPS_ASKED_MAX: Final = 200
# Groups are asked for so long, but for the last one: a page waits for them.
ASKED_MS: Final = 10_000
# Of the retries and dead letters of a group, so many of the message's key are looked at, or the last ones if it has none.
FAILED_ASKED_MAX: Final = 100
# What a broker may answer to a question about one group; the journey goes on without it. See `unanswered`.
NO_ANSWER: Final = (BrokerError, RequestTimeout)


async def add_message(
    admin: AdminClient, journey: Journey, record: Record, detail: str = ""
) -> int:
    """Adds who sent a message, and where it is stored; returns the number of the latter.

    Args:
        admin: asks the broker.
        journey: gets the hops.
        record: the message.
        detail: more about how it was sent.
    """
    sender = sender_of(record, await admin.producers([record]))["sender"]
    whom = f"{sender.client_id} at {sender.address}" if sender else ""
    sent = journey.add(
        None, "sender", "sent", whom, at_ms=record.born_at_ms, detail=detail, page="/producers"
    )
    return journey.add(
        sent,
        "queue",
        "queued",
        id_of(record),
        at_ms=record.stored_at_ms,
        page=page_of("/message", {"id": id_of(record)}),
    )


async def add_groups(
    admin: AdminClient,
    journey: Journey,
    record: Record,
    after: int,
    known: Collection[str] = (),
    *,
    until: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Adds each group that reads the message's topic, but for those that are known.

    Args:
        admin: asks the broker.
        journey: gets the hops.
        record: the message.
        after: the hop that says where it is stored.
        known: groups that others tell of.
        until: when no further group is asked, by the clock; None: in `ASKED_MS`.
        clock: seconds that only grow.
    """
    if until is None:
        until = clock() + ASKED_MS / 1_000
    try:
        steps = await steps_of(admin, id_of(record))
        groups = [one.group for one in (await admin.groups())[:GROUPS_ASKED_MAX]]
        groups = [name for name in groups if name not in known]
        for place, name in enumerate(groups):
            if clock() >= until:
                left = f"{len(groups) - place:,} groups were not asked: the others took over {ASKED_MS / 1_000:g} s"
                journey.add(after, "reader", "read", "", state="unknown", detail=left)
                return
            await _add_reader(admin, journey, record, after, name, steps.get(name, []))
    except NO_ANSWER as error:
        _add_unknown(journey, after, "", error)


async def add_group(
    admin: AdminClient, journey: Journey, record: Record, after: int, group: str
) -> None:
    """Adds how far one group is with a message, or that the broker does not say; arguments as `add_groups`."""
    try:
        steps = await steps_of(admin, id_of(record))
        await _add(admin, journey, record, after, group, steps.get(group, []))
    except NO_ANSWER as error:
        _add_unknown(journey, after, group, error)


async def add_steps(admin: AdminClient, journey: Journey, message_id: str) -> None:
    """Adds what consumers told of a message that is gone; nothing, if they told nothing.

    Args:
        admin: asks the broker.
        journey: gets the hops.
        message_id: `topic:queue:offset`.
    """
    steps = await steps_of(admin, message_id)
    if not steps:
        return
    detail = "it was deleted by age; consumers told what they did with it"
    queued = journey.add(
        None, "queue", "queued", message_id, state="unknown", cause="not kept", detail=detail
    )
    for group, told in steps.items():
        _add_told(journey, queued, group, told)


async def steps_of(admin: AdminClient, message_id: str) -> dict[str, list[TraceStep]]:
    """Returns what consumers that trace told of a message, by group.

    Args:
        admin: asks the broker.
        message_id: `topic:queue:offset`.
    """
    found: dict[str, list[TraceStep]] = defaultdict(list)
    for one in await admin.steps(message_id):
        found[one.group].append(one)
    return found


async def standing_of(admin: AdminClient, group: str, record: Record) -> dict[str, Any]:
    """Returns state, cause and detail of a hop: how far a group is with a message by its offset."""
    found = await _described(admin, group)
    lag = None if found is None else await _queue_of(admin, group, record)
    if found is None or lag is None:
        return stopped("no consumer", f"group {group} does not read it; start its consumers")
    if lag.committed > record.offset:
        return {"state": "done", "detail": f"the group's offset is {lag.committed:,}, behind it"}
    if any(not rules.consume for rules in found.rules):
        return stopped("group paused", f"an operator paused group {group}; let it go on")
    if not found.members:
        return stopped("no consumer", f"group {group} has no member; start its consumers")
    before = max(0, record.offset - max(lag.committed, lag.first))
    holder = f"; {lag.member} has the queue" if lag.member else ""
    return {
        "state": "waits" if lag.committed >= 0 else "unknown",
        "cause": "waits its turn",
        "detail": f"{before:,} messages of the queue before it are not done{holder}"
        if lag.committed >= 0
        else "the group keeps its offsets itself, or has finished nothing yet",
    }


async def _queue_of(admin: AdminClient, group: str, record: Record) -> QueueLag | None:
    """Returns how far a group is in a message's queue; None: it is not known there."""
    for one in (await admin.lag(group, [record.queue.topic])).queues:
        if one.queue_id == record.queue.queue_id:
            return one
    return None


async def _add_reader(
    admin: AdminClient,
    journey: Journey,
    record: Record,
    after: int,
    group: str,
    steps: list[TraceStep],
) -> None:
    """Adds a group if it reads the message's topic, or if the broker does not say whether it does."""
    try:
        found = await _described(admin, group)
    except NotPermitted:
        raise
    except NO_ANSWER as error:
        _add_unknown(journey, after, group, error)
        return
    if found is not None and record.queue.topic in found.topics:
        await _add(admin, journey, record, after, group, steps)


async def _add(
    admin: AdminClient,
    journey: Journey,
    record: Record,
    after: int,
    group: str,
    steps: list[TraceStep],
) -> None:
    """Adds what a group's consumers told, and then where the message stands."""
    hop = _add_told(journey, after, group, steps)
    if steps and steps[-1].kind == "acknowledged":
        return
    try:
        await _add_standing(admin, journey, record, hop, group)
    except NotPermitted:
        raise
    except NO_ANSWER as error:
        _add_unknown(journey, hop, group, error)


async def _add_standing(
    admin: AdminClient, journey: Journey, record: Record, hop: int, group: str
) -> None:
    """Adds where a message stands: what failed of it, or how far the group is."""
    page = page_of("/group", {"group": group})
    failed = await _failed(admin, group, record)
    if not failed:
        standing = await standing_of(admin, group, record)
        journey.add(hop, "handler", "read", group, page=page, **standing)
        return
    letters = [one for one, _ in failed if one.queue.topic == dead_letter_topic(group)]
    last, origin = failed[-1]
    told = f"{origin.attempt} attempts failed, the last one with {origin.reason}"
    if letters:
        journey.add(
            hop, "handler", "dead letter", id_of(letters[-1]), at_ms=letters[-1].stored_at_ms, state="stopped",
            cause="dead letter", detail=told, page=page_of("/dead", {"group": group}),
        )  # fmt: skip
        return
    hop = journey.add(
        hop, "queue", "retried", id_of(last), at_ms=last.stored_at_ms, detail=told,
        page=page_of("/message", {"id": id_of(last)}),
    )  # fmt: skip
    standing = await standing_of(admin, group, last)
    if standing["state"] != "done":
        standing |= {"cause": standing["cause"].replace("waits its turn", "retrying")}
    journey.add(hop, "handler", "read", group, page=page, **standing)


def _add_unknown(journey: Journey, after: int, group: str, error: Exception) -> None:
    """Adds that the broker did not say how far a group is; those of others follow all the same."""
    page = page_of("/group", {"group": group}) if group else ""
    journey.add(after, "reader", "read", group, page=page, **unanswered(error))


def _add_told(journey: Journey, after: int, group: str, steps: Sequence[TraceStep]) -> int:
    """Adds what a group's consumers told of a message; returns the last hop."""
    page = page_of("/group", {"group": group})
    for one in steps:
        detail = f"attempt {one.attempt}{f': {one.detail}' if one.detail else ''}"
        after = journey.add(
            after, "handler", one.kind, group, at_ms=one.at_ms, page=page, detail=detail
        )
    return after


async def _failed(admin: AdminClient, group: str, record: Record) -> list[tuple[Record, Origin]]:
    """Copies of a message in the group's retry topic and among its dead letters, the oldest first."""
    place = (*record.queue, record.offset)
    found: list[tuple[Record, Origin]] = []
    for topic_of in (retry_topic, dead_letter_topic):
        # A group whose name no topic can have does not retry; one that has no such topic has not.
        with suppress(ValueError, TopicNotFound):
            topic = topic_of(group)
            copies = (
                await admin.find(
                    topic, record.key, from_ms=record.stored_at_ms, limit=FAILED_ASKED_MAX
                )
                if record.key
                else (await admin.tail(topic, FAILED_ASKED_MAX)).records
            )
            for one in copies:
                origin = origin_of(one)
                if origin and (origin.topic, origin.queue_id, origin.offset) == place:
                    found.append((one, origin))
    return found


async def _described(admin: AdminClient, group: str) -> GroupDescription | None:
    try:
        return await admin.group(group)
    except GroupNotFound:  # gone meanwhile, or never there
        return None


def unanswered(error: Exception) -> dict[str, Any]:
    """Returns state, cause and detail of a hop: the broker did not say how far a group is.

    Args:
        error: one of `NO_ANSWER`.
    """
    if isinstance(error, NotPermitted):
        return {"state": "unknown", "cause": "not permitted", "detail": str(error)}
    return {"state": "unknown", "detail": f"the broker did not say: {error}"}


def stopped(cause: str, detail: str) -> dict[str, Any]:
    """Returns state, cause and detail of a hop behind which nothing goes on by itself."""
    return {"state": "stopped", "cause": cause, "detail": detail}
