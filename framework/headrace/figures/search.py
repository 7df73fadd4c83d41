"""
Messages of a topic that fit a condition: looked through a piece at a time, from its oldest on.

    _tag = 'Deposited' AND body.amount > 100 AND _key LIKE 'acc%'     the filter language of subscriptions
    body.amount, body.lines.0.sku                                     what stands there in a body of JSON
    _key, _tag, _bytes                                                the message's own; other names are headers'

One call looks through so many messages and for so long, and says where to go on. Used by `headrace message` and the console.
"""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:  # the help text must not wait for the queue
    from headrace_mq.admin.client import AdminClient
    from headrace_mq.message import QueueRef, Record
    from headrace_mq.protocol.bodies import QueueRange

__all__ = [
    "SEARCHED_MAX",
    "SEARCH_MS",
    "LastFit",
    "MessageFilter",
    "Search",
    "Searched",
    "last_that_fit",
    "require_content",
    "search",
]

# Messages that one call looks through: a page is there within a second or two.
SEARCHED_MAX: Final = 10_000
# How long one call looks, but for its last piece.
SEARCH_MS: Final = 2_000
# Of the end of a topic so many are looked through, over all of its queues, and for as long as one search.
LAST_SEARCHED_MAX: Final = 500
# Messages of a queue before those of the next one: what is newest in each queue is looked through first.
_LAST_PIECE_MAX: Final = 20
# Bodies of messages that fit, which are in memory at once, but for the last piece: a piece may have bodies of megabytes.
_LAST_BYTES_MAX: Final = 64 * 1024 * 1024
_BODY: Final = "body."
_BYTES: Final = "_bytes"
_PER_S: Final = 1_000


class MessageFilter:
    """A condition over messages, in the language of subscriptions' filters, over bodies of JSON too.

    Args:
        text: such as `body.amount > 100 AND region = 'EU'`.

    Attributes:
        text: as given.
        asks_content: whether it looks at bodies or headers.

    Raises:
        ValueError: it cannot be understood; the sentence says at which column.
    """

    def __init__(self, text: str) -> None:
        from headrace_mq.filters.filter import Filter

        self.text = text
        self._filter = Filter(text)
        self._paths = {
            name: name.removeprefix(_BODY).split(".")
            for name in self._filter.headers
            if name.startswith(_BODY)
        }
        self.asks_content = any(name != _BYTES for name in self._filter.headers)

    def select(self, records: "Sequence[Record]") -> "list[Record]":
        """Returns those that fit, in their order; what is unknown does not."""
        named = [self._values(one) for one in records]
        keys, tags = [one.key for one in records], [one.tag for one in records]
        return [records[at] for at in self._filter.places(len(records), named, keys, tags)]

    def _values(self, record: "Record") -> dict[str, str]:
        from headrace_mq.access.heads import body_bytes

        values = {**record.headers, _BYTES: str(body_bytes(record))}
        if self._paths:
            body = _json(record.body)
            for name, path in self._paths.items():
                values.pop(name, None)
                if (text := _text_at(body, path)) is not None:
                    values[name] = text
        return values


class Search(NamedTuple):
    """What is looked for.

    Attributes:
        topic: its name.
        condition: what fits.
        queue: the number of the one queue; None: all of the topic, one behind the other.
        since_ms: only what was stored then or later, in ms since 1970 UTC.
        after: `Searched.next` of the call before; empty: from the beginning.
        limit: the first so many that fit.
    """

    topic: str
    condition: MessageFilter
    queue: int | None = None
    since_ms: int | None = None
    after: str = ""
    limit: int = 100


class Searched(NamedTuple):
    """What was found so far.

    Attributes:
        records: those that fit.
        searched: messages that this call and those before it have looked through.
        of: messages that there are to look through.
        next: where to go on, `queue:offset`; empty: everything was looked through.
    """

    records: "list[Record]"
    searched: int
    of: int
    next: str


class LastFit(NamedTuple):
    """What fits among the last messages of a topic.

    Attributes:
        records: those that fit, the oldest first.
        searched: messages that were looked through, the newest of each queue.
        of: messages that the queues hold.
    """

    records: "list[Record]"
    searched: int
    of: int


async def require_content(admin: "AdminClient", topic: str, condition: MessageFilter) -> None:
    """Refuses a condition over what the user may not see.

    Raises:
        NotPermitted: it looks at bodies or headers, and the user may not consume the topic.
    """
    from headrace_mq.access.heads import consumption
    from headrace_mq.errors import NotPermitted

    if not condition.asks_content:
        return
    ask = consumption(topic)
    if not (await admin.may(ask.action, ask.resource)).allowed:
        raise NotPermitted(
            f"the filter looks at bodies or headers, which are hidden: it needs {ask.action} on {ask.resource}; without"
            " that a filter has _key, _tag and _bytes"
        )


async def search(
    admin: "AdminClient",
    wanted: Search,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Searched:
    """Looks through a piece of a topic.

    Args:
        admin: a connection to the broker.
        wanted: what fits, and where to begin.
        clock: seconds that only grow.

    Raises:
        ValueError: `after` is no place of this topic.
        NotPermitted: the user may not see what the condition looks at.
        TopicNotFound, QueueNotFound: the topic or the queue does not exist.
    """
    await require_content(admin, wanted.topic, wanted.condition)
    places = await _places(admin, wanted)
    total = sum(end - start for start, end in places.values())
    left, until = _from(places, wanted.after), clock() + SEARCH_MS / _PER_S
    found: list[Record] = []
    looked = 0
    for queue, (start, end) in left.items():
        place = start
        while place < end:
            if looked >= SEARCHED_MAX or clock() >= until:
                return _so_far(found, total, left, (queue, place))
            records, behind = await admin.page(queue, place)
            fit = wanted.condition.select([one for one in records if one.offset < end])
            room = wanted.limit - len(found)
            found += fit[:room]
            if len(fit) >= room:
                return _so_far(found, total, left, (queue, fit[room - 1].offset + 1))
            if (
                behind <= place
            ):  # what was deleted or damaged meanwhile is no reason to ask for ever
                break
            looked, place = looked + behind - place, behind
    return Searched(found, total, total, "")


async def last_that_fit(
    admin: "AdminClient",
    topic: str,
    condition: MessageFilter,
    limit: int,
    queues: Sequence[int] = (),
    *,
    clock: Callable[[], float] = time.monotonic,
) -> LastFit:
    """Returns the last messages of a topic that fit, among its last LAST_SEARCHED_MAX or as many as there is time for.

    Args:
        admin: a connection to the broker.
        topic: its name.
        condition: what fits.
        limit: the last so many that fit.
        queues: their numbers; none means all.
        clock: seconds that only grow.

    Raises:
        NotPermitted, TopicNotFound, QueueNotFound: as `search`.
    """
    await require_content(admin, topic, condition)
    until = clock() + SEARCH_MS / _PER_S
    ranges = await _ranges(admin, topic, queues)
    left = {queue: (one.first, one.end) for queue, one in ranges.items() if one.end > one.first}
    total = sum(end - first for first, end in left.values())
    found: list[Record] = []
    looked = 0
    while left:
        for queue, (first, end) in list(left.items()):
            held = sum(len(one.body) for one in found)
            if looked >= LAST_SEARCHED_MAX or held >= _LAST_BYTES_MAX or clock() >= until:
                return LastFit(found, looked, total)
            start = max(first, end - _LAST_PIECE_MAX, end - (LAST_SEARCHED_MAX - looked))
            fit = await _fit_between(admin, condition, queue, start, end)
            found = sorted(found + fit, key=_stored)[-limit:] if limit > 0 else []
            looked, left[queue] = looked + end - start, (first, start)
            if start == first:
                del left[queue]
    return LastFit(found, looked, total)


async def _fit_between(
    admin: "AdminClient", condition: MessageFilter, queue: "QueueRef", start: int, end: int
) -> "list[Record]":
    """The messages of a part of a queue that fit."""
    found: list[Record] = []
    while start < end:
        records, behind = await admin.page(queue, start)
        found += condition.select([one for one in records if one.offset < end])
        if behind <= start:  # as in `search`
            break
        start = behind
    return found


def _stored(record: "Record") -> "tuple[int, QueueRef, int]":
    return record.stored_at_ms, record.queue, record.offset


async def _ranges(
    admin: "AdminClient", topic: str, queues: Sequence[int]
) -> "dict[QueueRef, QueueRange]":
    """What queues of a topic hold; all of them where none is named."""
    from headrace_mq.errors import QueueNotFound
    from headrace_mq.message import QueueRef

    ranges = {QueueRef(one.topic, one.queue_id): one for one in await admin.ranges([topic])}
    for number in queues:
        if QueueRef(topic, number) not in ranges:
            raise QueueNotFound(f"topic {topic!r} has queues 0 to {len(ranges) - 1}, not {number}")
    return {one: ranges[one] for one in [QueueRef(topic, each) for each in queues] or ranges}


async def _places(admin: "AdminClient", wanted: Search) -> "dict[QueueRef, tuple[int, int]]":
    """Where each queue begins and ends."""
    ranges = await _ranges(admin, wanted.topic, () if wanted.queue is None else (wanted.queue,))
    begins: dict[QueueRef, int] = {}
    if wanted.since_ms is not None:
        begins = await admin.offsets_at([wanted.topic], wanted.since_ms)
    places = {}
    for queue in sorted(ranges):
        one = ranges[queue]
        start = max(one.first, begins.get(queue, one.first))
        places[queue] = (start, max(start, one.end))
    return places


def _from(
    places: "dict[QueueRef, tuple[int, int]]", after: str
) -> "dict[QueueRef, tuple[int, int]]":
    """What is left from a place on."""
    if not after:
        return places
    number, _, offset = after.partition(":")
    if not (number.isdecimal() and offset.isdecimal() and len(after) <= 40):
        raise ValueError(f"after is queue:offset, as the search before said, not {after[:40]!r}")
    left = {}
    for queue, (start, end) in places.items():
        if queue.queue_id == int(number):
            left[queue] = (min(max(start, int(offset)), end), end)
        elif queue.queue_id > int(number):
            left[queue] = (start, end)
    return left


def _so_far(
    found: "list[Record]",
    total: int,
    left: "dict[QueueRef, tuple[int, int]]",
    place: "tuple[QueueRef, int]",
) -> Searched:
    """What was found up to a place; nothing is left where that is the end of the last queue."""
    queue, offset = place
    open_ = sum(end - start for one, (start, end) in left.items() if one > queue)
    open_ += left[queue][1] - offset
    return Searched(found, total - open_, total, f"{queue.queue_id}:{offset}" if open_ else "")


def _json(body: bytes) -> Any:
    """The values of a body; None where it is no JSON."""
    import msgspec

    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _text_at(value: Any, path: Sequence[str]) -> str | None:
    """What stands at a path, as the text of a header; None: nothing does, or no single value."""
    for part in path:
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and len(part) < 10:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return None if value is None or isinstance(value, dict | list) else str(value)
