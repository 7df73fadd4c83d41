"""
The verbs about messages: show, trace, find, list, tail, search, send; and about dead letters: dead, resend, purge.

Used by `catalogue`; asks the broker as `headrace message` does.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from headrace.console.problems import Mistake
from headrace.console.verbs.journey.trace import TRACE
from headrace.console.verbs.verb import Consequence, Given, Tell, Verb, VerbField
from headrace.figures.records import described, messages_from, sender_of
from headrace.figures.search import MessageFilter, Search, last_that_fit, search
from headrace.figures.words import when
from headrace_mq.admin.client import AdminClient
from headrace_mq.admin.dead_letters import LETTERS_MAX, DeadLetter, ResendSettings, Resent
from headrace_mq.client.producer.producer import Producer
from headrace_mq.client.retry_headers import DEAD_LETTER_PREFIX
from headrace_mq.message import Message, Record
from headrace_mq.message_id import MessageId

__all__ = ["MESSAGES", "SHOWN_MAX", "letters_kept", "row_of"]

# Messages of one answer: bodies may be large, and a page has no more than 150 KB.
SHOWN_MAX: Final = 100
# Characters of a body in a list; `message show` has all of it.
BODY_SHOWN_MAX: Final = 300
_TOPIC, _GROUP = VerbField("topic"), VerbField("group")
_LIMIT = VerbField("limit", "number", SHOWN_MAX)


async def _show(admin: AdminClient, given: Given) -> Any:
    try:
        record = await admin.message(given["id"])
    except ValueError as error:
        raise Mistake(str(error)) from error
    if record is not None:
        senders = await admin.producers([record])
        return {"message": described(record) | sender_of(record, senders), "damage": ""}
    batch = await admin.batch_of(given["id"])
    return {"message": None, "damage": batch.damage if batch is not None else ""}


async def _send(admin: AdminClient, given: Given) -> Any:
    message = Message(
        topic=given["topic"], body=given["body"].encode(), key=given["key"], tag=given["tag"]
    )
    async with Producer(admin.address) as producer:
        sent = await producer.send(message)
    return {"id": str(MessageId(sent.queue, sent.offset))}


async def _before_send(admin: AdminClient, given: Given) -> Consequence:
    topic, size = await admin.topic(given["topic"]), len(given["body"].encode())
    return Consequence(
        (f"A message of {size:,} bytes is stored in topic {topic.topic}, and each of its groups gets it.",)
    )  # fmt: skip


async def _find(admin: AdminClient, given: Given) -> Any:
    until = {} if given["until"] is None else {"to_ms": given["until"]}
    records = await admin.find(
        given["topic"], given["key"], from_ms=given["since"], limit=_at_most(given), **until
    )
    return {"messages": [row_of(one) for one in records]}


async def _list(admin: AdminClient, given: Given) -> Any:
    if (given["offset"] is None) == (given["since"] is None):
        raise Mistake("write offset, or since")
    records = await messages_from(
        admin,
        given["topic"],
        given["queue"],
        offset=given["offset"],
        since_ms=given["since"],
        limit=_at_most(given),
    )
    return {"messages": [row_of(one) for one in records]}


async def _tail(admin: AdminClient, given: Given) -> Any:
    limit, queues = _at_most(given), given["queue"]
    if given["filter"]:
        condition = MessageFilter(given["filter"])
        found = await last_that_fit(admin, given["topic"], condition, limit, queues)
        counted = {"searched": found.searched, "of": found.of}
        return {"messages": [row_of(one) for one in found.records], **counted}
    records = (await admin.tail(given["topic"], limit, queues)).records
    return {"messages": [row_of(one) for one in records]}


async def _search(admin: AdminClient, given: Given) -> Any:
    wanted = Search(
        given["topic"],
        MessageFilter(given["filter"]),
        queue=given["queue"],
        since_ms=given["since"],
        after=given["after"],
        limit=_at_most(given),
    )
    found = await search(admin, wanted)
    return {
        "messages": [row_of(one) for one in found.records],
        "searched": found.searched,
        "of": found.of,
        "next": found.next or None,
    }


def _at_most(given: Given) -> int:
    limit: int = given["limit"]
    return max(1, min(SHOWN_MAX, limit))


def row_of(record: Record) -> dict[str, Any]:
    """Returns the fields of a message in a list: the body's beginning alone."""
    row = described(record)
    row.pop("body_base64")
    if row["hidden"]:
        return row | {"body": "", "cut": False}
    text = row["body"] if row["body"] is not None else record.body[:BODY_SHOWN_MAX].hex(" ")
    row["cut"] = len(text) > BODY_SHOWN_MAX
    return row | {"body": text[:BODY_SHOWN_MAX]}


async def _dead(admin: AdminClient, given: Given) -> Any:
    letters = await admin.dead_letters(
        given["group"], start=given["from"], limit=_at_most(given), unsent=given["unsent"]
    )
    reasons = Counter(_reason(one) for one in letters)
    return {
        "group": given["group"],
        "letters": [_letter(one) for one in letters],
        "causes": [{"cause": cause, "letters": count} for cause, count in reasons.most_common()],
        "next": letters[-1].id + 1 if len(letters) >= _at_most(given) else None,
    }


async def letters_kept(admin: AdminClient, topics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the groups that have dead letters on their lists, with how many.

    Args:
        admin: asks the broker.
        topics: of dead letters, rows of `topic list`.
    """
    rows = []
    for one in topics:
        group = one["topic"].removeprefix(DEAD_LETTER_PREFIX)
        rows.append({"group": group, **(await admin.count_letters(group))._asdict()})
    return {"groups": rows}


def _reason(letter: DeadLetter) -> str:
    return letter.origin.reason if letter.origin else "unknown"


def _letter(one: DeadLetter) -> dict[str, Any]:
    origin = one.origin
    return {
        "id": one.id,
        "origin": f"{origin.topic}:{origin.queue_id}:{origin.offset}" if origin else "",
        "attempts": origin.attempt if origin else None,
        "cause": _reason(one),
        "resent_at_ms": one.resent_at_ms,
        "message": row_of(one.record),
    }


async def _resend(admin: AdminClient, given: Given, tell: Tell = lambda _: None) -> Any:
    _check_choice(given)
    if not given["all"]:
        body = None if given["body"] is None else given["body"].encode()
        return _outcomes(await admin.resend(given["group"], given["id"], body=body))
    settings = ResendSettings(per_second=_rate(given))

    def progress(count: int) -> None:
        tell(f"{count:,} letters were sent again so far.")

    return _outcomes(await admin.resend_all(given["group"], settings=settings, progress=progress))


async def _before_resend(admin: AdminClient, given: Given) -> Consequence:
    _check_choice(given)
    group = given["group"]
    if given["all"]:
        letters = await admin.dead_letters(group, limit=LETTERS_MAX, unsent=True)
        more = " or more" if len(letters) == LETTERS_MAX else ""
        lasts = f"At {_rate(given):,} a second it takes about {-(-len(letters) // _rate(given)):,} s{more}."
        told: Sequence[str] = (
            f"{len(letters):,}{more} dead letters of group {group} are sent again.",
            lasts,
        )
    else:
        letters, told = [], (f"{len(given['id']):,} dead letters of group {group} are sent again.",)
        if given["body"] is not None:
            size = len(given["body"].encode())
            told = (
                f"Letter {given['id'][0]} of group {group} is sent again with another body, of {size:,} bytes.",
                "Its key, its tag and its headers stay. The letter itself stays as it is, and counts as sent again.",
                *await _changed_lines(admin, given),
            )
    return Consequence(
        (*told, "The group handles each as a new message; one whose cause is still there becomes a dead letter again."),
        hindered="it has none that were not sent again"
        if given["all"] and not letters
        else await _resend_need(admin, group),
    )  # fmt: skip


async def _resend_need(admin: AdminClient, group: str) -> str:
    """Says what a user lacks to send letters again: who may not see them cannot send them."""
    resource = f"group:{group}"
    ruling = await admin.may("consume", resource)
    return (
        "" if ruling.allowed else f"the letters are hidden from you: it needs consume on {resource}"
    )


async def _changed_lines(admin: AdminClient, given: Given) -> Sequence[str]:
    """Says where the lines of a letter ended otherwise: a form has LF alone."""
    (number, *_) = given["id"]
    found = await admin.dead_letters(given["group"], start=number, limit=1)
    if (
        any(one.id == number and b"\r\n" in one.record.body for one in found)
        and "\r\n" not in given["body"]
    ):
        return (
            "The letter's lines end with CRLF, and those of the new body with LF; a program can send CRLF.",
        )
    return ()


def _check_choice(given: Given) -> None:
    if bool(given["id"]) == given["all"]:
        raise Mistake("choose letters by id, or all")
    if given["body"] is not None and len(set(given["id"])) != 1:
        raise Mistake("a new body is for one letter: give one id")


def _rate(given: Given) -> int:
    rate: int = given["rate"]
    return max(1, rate)


def _outcomes(resent: Sequence[Resent]) -> list[dict[str, Any]]:
    return [
        {"id": one.id, "sent_as": "", "error": one.error}
        if one.sent is None
        else {"id": one.id, "sent_as": f"{one.sent.queue.topic}:{one.sent.queue.queue_id}:{one.sent.offset}", "error": ""}
        for one in resent
    ]  # fmt: skip


def _told_resent(given: Given, answer: Any) -> str:
    failed = [one for one in answer if one["error"]]
    told = f"group {given['group']}: {len(answer) - len(failed):,} letters were sent again"
    return f"{told}, {len(failed):,} could not be: {failed[0]['error']}" if failed else told


async def _purge(admin: AdminClient, given: Given, *, dry_run: bool = False) -> int:
    return await admin.purge(
        given["group"],
        ids=given["id"] or None,
        resent=given["resent"],
        before_ms=given["before"],
        dry_run=dry_run,
    )


async def _before_purge(admin: AdminClient, given: Given) -> Consequence:
    count = await _purge(admin, given, dry_run=True)
    before = f", given up before {when(given['before'])} UTC" if given["before"] else ""
    return Consequence(
        (f"For good: {count:,} dead letters of group {given['group']} go off the list{before}.",
         "No command shows them or sends them again."),
        hindered="" if count else "there is no such letter",
    )  # fmt: skip


MESSAGES: Final = (
    Verb("message show", _show, (VerbField("id"),)),
    TRACE,
    Verb(
        "message send",
        _send,
        (
            _TOPIC,
            VerbField("body", "body"),
            VerbField("key", default=""),
            VerbField("tag", default=""),
        ),
        _before_send,
        lambda _, answer: f"message {answer['id']} is stored",
    ),
    Verb(
        "message find",
        _find,
        (
            _TOPIC,
            VerbField("key"),
            VerbField("since", "time", 0),
            VerbField("until", "time", None),
            _LIMIT,
        ),
    ),
    Verb(
        "message list",
        _list,
        (
            _TOPIC,
            VerbField("queue", "number", 0),
            VerbField("offset", "number", None),
            VerbField("since", "time", None),
            _LIMIT,
        ),
    ),
    Verb(
        "message tail",
        _tail,
        (_TOPIC, VerbField("queue", "numbers", ()), VerbField("filter", default=""), _LIMIT),
    ),
    Verb(
        "message search",
        _search,
        (
            _TOPIC,
            VerbField("filter"),
            VerbField("queue", "number", None),
            VerbField("since", "time", None),
            VerbField("after", default=""),
            _LIMIT,
        ),
    ),
    Verb(
        "message dead",
        _dead,
        (
            _GROUP,
            VerbField("unsent", "flag", default=False),
            VerbField("from", "number", 0),
            _LIMIT,
        ),
    ),
    Verb(
        "message resend",
        _resend,
        (
            _GROUP,
            VerbField("id", "numbers", ()),
            VerbField("all", "flag", default=False),
            VerbField("rate", "number", 500),
            VerbField("body", "body", None),
        ),
        _before_resend,
        _told_resent,
        _resend,
    ),
    Verb(
        "message purge",
        _purge,
        (
            _GROUP,
            VerbField("id", "numbers", ()),
            VerbField("resent", "flag", default=False),
            VerbField("before", "time", None),
        ),
        _before_purge,
        lambda given, answer: f"group {given['group']}: {answer:,} letters went off the list",
    ),
)
