"""
The verbs about groups: list, show, reset, undo, set, delete.

Used by `catalogue`; asks the broker as `headrace group` does.
"""

from collections import Counter
from typing import Any, Final

from headrace.console.verbs.topic import PAGE_ROWS, QUEUES_PAGED, paged
from headrace.console.verbs.verb import Consequence, Given, Verb, VerbField
from headrace.figures.words import when
from headrace_mq.admin.client import AdminClient
from headrace_mq.protocol.administration import OffsetMoves

__all__ = ["GROUPS", "TARGETS"]

TARGETS: Final = ("earliest", "latest", "offset", "time", "shift")
_GROUP = VerbField("group")
_COLUMNS: Final = ("topic", "queue", "from", "to", "delivered again", "skipped")


async def _list(admin: AdminClient, given: Given) -> Any:
    wanted = given["search"].lower()
    found = [one for one in await admin.groups() if wanted in one.group.lower()]
    if given["sort"] == "lag":
        found.sort(key=lambda one: -(one.lag if one.commits else 0))
    shown, place = paged(found, given)
    return {"groups": shown, **place}


async def _show(admin: AdminClient, given: Given) -> Any:
    group = await admin.group(given["group"])
    lag = await admin.lag(given["group"], group.topics)
    shown, place = paged(lag.queues, given)
    return {
        "group": group,
        "now_ms": lag.now_ms,
        "behind": sum(one.lag for one in lag.queues),
        "owned": Counter(one.member for one in lag.queues),
        "queues": shown,
        **place,
    }


async def _reset(admin: AdminClient, given: Given, *, dry_run: bool = False) -> OffsetMoves:
    value = given["value"]
    if given["to"] == "time":
        value = VerbField("value", "time").read(value)
    elif given["to"] in {"offset", "shift"}:
        value = VerbField("value", "number").read(value)
    else:
        value = 0
    return await admin.reset_offsets(
        given["group"],
        given["to"],
        value,
        topics=given["topic"],
        queues=given["queue"],
        dry_run=dry_run,
    )


async def _before_reset(admin: AdminClient, given: Given) -> Consequence:
    moves = await _reset(admin, given, dry_run=True)
    told = _counts(moves)
    return Consequence(
        (f"Group {given['group']} moves to {_where(given)}.", told,
         "Skipped messages are never given to it; messages that are delivered again are handled twice."),
        _COLUMNS,
        _rows(moves),
    )  # fmt: skip


def _where(given: Given) -> str:
    if given["to"] == "time":
        return f"what was stored at {when(VerbField('value', 'time').read(given['value']))} UTC or later"
    return {
        "earliest": "the oldest messages",
        "latest": "the end, behind the newest messages",
        "offset": f"offset {given['value']}",
        "shift": f"where it stands, and {given['value']} messages on",
    }[given["to"]]


async def _undo(admin: AdminClient, given: Given) -> OffsetMoves:
    return await admin.undo_reset(given["group"], reset_at_ms=given["reset_at_ms"])


async def _before_undo(admin: AdminClient, given: Given) -> Consequence:
    moves = await admin.undo_reset(given["group"], reset_at_ms=given["reset_at_ms"], dry_run=True)
    since = f"{moves.reset_by} moved it at {when(moves.reset_at_ms)} UTC"
    return Consequence(
        (f"Group {given['group']} goes back to where it stood before {since}.",
         _counts(moves),
         "What is skipped by this it had read before it was moved; what it has read since stays handled."),
        _COLUMNS,
        _rows(moves),
        hindered=moves.hindered,
        confirmed={"reset_at_ms": moves.reset_at_ms},
    )  # fmt: skip


async def _delete(admin: AdminClient, given: Given) -> Any:
    return await admin.delete_group(given["group"])


async def _before_delete(admin: AdminClient, given: Given) -> Consequence:
    moves = await admin.delete_group(given["group"], dry_run=True)
    return Consequence(
        (f"For good: all offsets of group {given['group']} go. Its next member begins as in a new group.",
         _counts(moves)),
        _COLUMNS,
        _rows(moves),
    )  # fmt: skip


async def _set(admin: AdminClient, given: Given) -> Any:
    consume = None if given["consume"] == "" else given["consume"] == "on"
    return await admin.set_group(given["group"], consume=consume, retries=given["retries"])


async def _before_set(_: AdminClient, given: Given) -> Consequence:
    told = []
    if given["consume"] == "off":
        told.append(
            f"Group {given['group']} gets no messages: its members stay and wait, and its lag grows."
        )
    if given["consume"] == "on":
        told.append(f"Group {given['group']} gets messages again, from where it stood.")
    if given["retries"] is not None:
        often = (
            "as often as each was set up" if given["retries"] < 0 else f"{given['retries']} times"
        )
        told.append(f"Its members try a failed message {often} again before it is a dead letter.")
    return Consequence(
        (*told, "It holds within a second, also after a restart of the broker."),
        hindered="" if told else "choose consume, or retries",
    )


def _counts(moves: OffsetMoves) -> str:
    again = sum(move.redelivered for move in moves.moves)
    skipped = sum(move.skipped for move in moves.moves)
    return f"{again:,} messages are delivered again, {skipped:,} are skipped."


def _rows(moves: OffsetMoves) -> list[tuple[object, ...]]:
    return [
        (
            one.topic,
            one.queue_id,
            _place(one.before),
            _place(one.after),
            one.redelivered,
            one.skipped,
        )
        for one in moves.moves
    ]


def _place(offset: int) -> int | str:
    return "none" if offset < 0 else offset


def _moved(given: Given, answer: OffsetMoves) -> str:
    return f"group {given['group']}: {_counts(answer)}"


def _said(given: Given, _: Any) -> str:
    return f"group {given['group']}: done"


GROUPS: Final = (
    Verb(
        "group list",
        _list,
        (
            VerbField("search", default=""),
            VerbField("sort", default="lag", choices=("lag", "name")),
            VerbField("page", "number", 1),
            VerbField("rows", "number", PAGE_ROWS),
        ),
    ),
    Verb("group show", _show, (_GROUP, *QUEUES_PAGED)),
    Verb(
        "group reset",
        _reset,
        (
            _GROUP,
            VerbField("to", choices=TARGETS),
            VerbField("value", default=""),
            VerbField("topic", "texts", ()),
            VerbField("queue", "numbers", ()),
        ),
        _before_reset,
        _moved,
    ),
    Verb(
        "group undo",
        _undo,
        (_GROUP, VerbField("reset_at_ms", "number", 0)),
        _before_undo,
        _moved,
    ),
    Verb(
        "group set",
        _set,
        (
            _GROUP,
            VerbField("consume", default="", choices=("on", "off")),
            VerbField("retries", "number", None),
        ),
        _before_set,
        _said,
    ),
    Verb("group delete", _delete, (_GROUP,), _before_delete, _moved),
)
