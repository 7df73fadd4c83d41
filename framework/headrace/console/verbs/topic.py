"""
The verbs about topics: list, show, create, add queues, freeze, thaw, delete.

Used by `catalogue`; asks the broker as `headrace topic` does.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final

from headrace.console.verbs.verb import Consequence, Given, Verb, VerbField
from headrace.figures.topics import topic_rows
from headrace.journey.groups import GROUPS_ASKED_MAX
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import GroupNotFound
from headrace_mq.protocol.administration import LagAnswer

__all__ = ["PAGE_ROWS", "QUEUES_PAGED", "TOPICS", "paged"]

# Rows of a page where the caller does not say.
PAGE_ROWS: Final = 50
_TOPIC = VerbField("topic")
# Which of the queues are shown, where there may be thousands.
QUEUES_PAGED: Final = (VerbField("page", "number", 1), VerbField("rows", "number", 200))
_QUEUE = VerbField("queue", "numbers", ())
_SIDES = (VerbField("writing", "flag", default=False), VerbField("reading", "flag", default=False))


def paged(items: Sequence[Any], given: Given) -> tuple[Sequence[Any], dict[str, Any]]:
    """Returns the items of a page, and which page it is.

    Args:
        items: all of them.
        given: with `page`, which begins with 1, and `rows`.
    """
    rows = max(1, min(500, given["rows"]))
    pages = max(1, -(-len(items) // rows))
    page = max(1, min(pages, given["page"]))
    shown = items[(page - 1) * rows : page * rows]
    return shown, {"page": page, "pages": pages, "total": len(items), "rows": rows}


async def _list(admin: AdminClient, given: Given) -> Any:
    found = sorted(await admin.topics(), key=lambda one: one.topic)
    hidden = 0
    if not given["system"]:
        own = [one for one in found if not one.topic.startswith("%")]
        hidden, found = len(found) - len(own), own
    wanted = given["search"].lower()
    matching = [one for one in found if wanted in one.topic.lower()]
    shown, place = paged(matching, given)
    return {"topics": await topic_rows(admin, shown), "hidden": hidden, **place}


async def _show(admin: AdminClient, given: Given) -> Any:
    topic = await admin.topic(given["topic"])
    queues, groups = await asyncio.gather(admin.queues([topic]), _groups(admin, topic.topic))
    shown, place = paged(queues, given)
    return {"topic": topic, "queues": shown, "groups": groups, **place}


async def _groups(admin: AdminClient, topic: str) -> list[dict[str, Any]]:
    """How far behind in the topic each group is that reads it."""
    found = []
    for one in (await admin.groups())[:GROUPS_ASKED_MAX]:
        try:
            group = await admin.group(one.group)
            lag = await admin.lag(one.group, [topic]) if topic in group.topics else LagAnswer(0, [])
        except GroupNotFound:  # gone meanwhile
            continue
        if lag.queues:
            behind = sum(each.lag for each in lag.queues)
            oldest = min((each.oldest_stored_at_ms for each in lag.queues if each.lag), default=0)
            waits_ms = max(0, lag.now_ms - oldest) if oldest else 0
            commits = any(each.committed >= 0 for each in lag.queues)
            found.append(
                {"group": one.group, "members": one.members, "lag": behind, "commits": commits, "waits_ms": waits_ms}
            )  # fmt: skip
    return found


async def _create(admin: AdminClient, given: Given) -> Any:
    return await admin.create_topic(
        given["topic"], queues=given["queues"], retention=given["retention"]
    )


async def _before_create(admin: AdminClient, given: Given) -> Consequence:
    names = [one.topic for one in await admin.topics()]
    if given["topic"] in names:
        return Consequence((), hindered=f"there is a topic {given['topic']} already")
    kept = {
        "forever": "keeps its messages for ever",
        "compact": "keeps the last message of each key",
        "transient": "keeps messages until they are old or the disk is needed",
    }
    queues = (
        f"{given['queues']} queues" if given["queues"] else "the broker's usual number of queues"
    )
    return Consequence(
        (f"Topic {given['topic']} is made with {queues}; it {kept[given['retention']]}.",
         "Queues can be added later, and never taken away while they hold messages.")
    )  # fmt: skip


async def _add_queues(admin: AdminClient, given: Given) -> Any:
    return await admin.add_queues(given["topic"], given["to"])


async def _before_add_queues(admin: AdminClient, given: Given) -> Consequence:
    topic = await admin.topic(given["topic"])
    return Consequence(
        (f"Topic {topic.topic} gets {given['to']} queues in place of {topic.queues}.",
         "Keys may then belong to other queues: messages of one key, sent before and after, may be read out of order.")
    )  # fmt: skip


async def _freeze(admin: AdminClient, given: Given) -> Any:
    return await admin.freeze(
        given["topic"], given["queue"], writing=given["writing"], reading=given["reading"]
    )


async def _before_freeze(admin: AdminClient, given: Given) -> Consequence:
    topic = await admin.topic(given["topic"])
    told = []
    if given["writing"]:
        told.append("Producers can send no message to them; they wait, or send to other queues.")
    if given["reading"]:
        told.append("Consumers get nothing from them, as if no message came.")
    hindered = "" if told else "choose writing, reading, or both"
    which = ", ".join(map(str, given["queue"])) or f"all {topic.queues}"
    return Consequence(
        (f"Queues of topic {topic.topic} that are frozen: {which}.", *told, "It holds until you thaw them, also after a restart."),
        hindered=hindered,
    )  # fmt: skip


def _thawed_sides(given: Given) -> tuple[bool, bool]:
    """Whether queues are thawed for writing and for reading: for both unless one is named."""
    both = not (given["writing"] or given["reading"])
    return given["writing"] or both, given["reading"] or both


async def _thaw(admin: AdminClient, given: Given) -> Any:
    writing, reading = _thawed_sides(given)
    return await admin.thaw(given["topic"], given["queue"], writing=writing, reading=reading)


async def _before_thaw(admin: AdminClient, given: Given) -> Consequence:
    topic = await admin.topic(given["topic"])
    told, stay = [], []
    for side, thaws, frozen in zip(
        ("writing", "reading"),
        _thawed_sides(given),
        (topic.unwritable, topic.unreadable),
        strict=True,
    ):
        opened = [one for one in frozen if thaws and one in (given["queue"] or frozen)]
        left = [one for one in frozen if one not in opened]
        told += [f"Queues that are open again for {side}: {_listed(opened)}."] if opened else []
        stay += [f"Queues that stay frozen for {side}: {_listed(left)}."] if left else []
    return Consequence(
        (f"Topic {topic.topic} has {topic.queues} queues.", *told, *stay),
        hindered="" if told else "none of these queues is frozen for that",
    )


def _listed(queues: Sequence[int]) -> str:
    return ", ".join(map(str, queues))


async def _delete(admin: AdminClient, given: Given) -> Any:
    return await admin.delete_queues(given["topic"], given["keep"])


async def _before_delete(admin: AdminClient, given: Given) -> Consequence:
    answer = await admin.delete_queues(given["topic"], given["keep"], dry_run=True)
    messages = sum(one.end - one.first for one in answer.queues)
    what = f"queues from {given['keep']} on of topic" if given["keep"] else "topic"
    hindered = any(one.obstacles for one in answer.queues)
    return Consequence(
        (f"For good: {what} {given['topic']} goes with {messages:,} messages. No one can bring them back.",),
        ("queue", "messages", "hindered, because it"),
        [(one.queue_id, one.end - one.first, "; ".join(one.obstacles)) for one in answer.queues],
        "it cannot go yet; the table says why" if hindered else "",
    )  # fmt: skip


def _said(given: Given, _: Any) -> str:
    return f"topic {given['topic']}: done"


TOPICS: Final = (
    Verb(
        "topic list",
        _list,
        (
            VerbField("search", default=""),
            VerbField("system", "flag", default=False),
            VerbField("page", "number", 1),
            VerbField("rows", "number", PAGE_ROWS),
        ),
    ),
    Verb("topic show", _show, (_TOPIC, *QUEUES_PAGED)),
    Verb(
        "topic create",
        _create,
        (
            _TOPIC,
            VerbField("queues", "number", 0),
            VerbField(
                "retention", default="transient", choices=("transient", "forever", "compact")
            ),
        ),
        _before_create,
        _said,
    ),
    Verb(
        "topic add-queues",
        _add_queues,
        (_TOPIC, VerbField("to", "number")),
        _before_add_queues,
        _said,
    ),
    Verb("topic freeze", _freeze, (_TOPIC, _QUEUE, *_SIDES), _before_freeze, _said),
    Verb("topic thaw", _thaw, (_TOPIC, _QUEUE, *_SIDES), _before_thaw, _said),
    Verb("topic delete", _delete, (_TOPIC, VerbField("keep", "number", 0)), _before_delete, _said),
)
