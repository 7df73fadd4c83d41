"""Messages that fit a condition, a piece of a topic at a time."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.figures import search as module
from headrace.figures.search import (
    MessageFilter,
    Search,
    Searched,
    last_that_fit,
    require_content,
    search,
)
from headrace_mq.errors import NotPermitted, QueueNotFound
from headrace_mq.message import QueueRef, Record
from headrace_mq.protocol.access import Explanation
from headrace_mq.protocol.bodies import QueueRange


def record(
    body: Any, *, queue: int = 0, offset: int = 0, key: str = "acc-1", tag: str = "Deposited"
) -> Record:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Record(QueueRef("t", queue), offset, key, tag, {"region": "EU"}, raw, 1, 1)


class Topic:
    """A topic of some queues, of which one answer holds two messages."""

    def __init__(self, *counts: int, allowed: bool = True) -> None:
        self.queues = [
            [record({"n": at}, queue=number, offset=at) for at in range(count)]
            for number, count in enumerate(counts)
        ]
        self.allowed = allowed
        self.asked: list[str] = []

    async def may(self, action: str, resource: str) -> Explanation:
        self.asked.append(f"{action} {resource}")
        return Explanation(allowed=self.allowed, reason="")

    async def ranges(self, _topics: Sequence[str]) -> list[QueueRange]:
        return [QueueRange("t", n, 0, len(held), 0) for n, held in enumerate(self.queues)]

    async def offsets_at(self, _topics: Sequence[str], time_ms: int) -> dict[QueueRef, int]:
        return {QueueRef("t", number): time_ms for number in range(len(self.queues))}

    async def page(self, queue: QueueRef, offset: int) -> tuple[list[Record], int]:
        found = self.queues[queue.queue_id][offset : offset + 2]
        return found, offset + len(found)


async def found(
    topic: Topic, text: str = "body.n >= 0", clock: Any = None, **more: Any
) -> Searched:
    admin: Any = topic
    wanted = Search("t", MessageFilter(text), **more)
    return await search(admin, wanted, **({"clock": clock} if clock else {}))


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("body.amount > 100", True),
        ("body.amount > 1000", False),
        ("_tag = 'Deposited' AND body.amount > 100 AND _key LIKE 'acc%'", True),
        ("body.lines.1.sku = 'tea'", True),
        ("body.lines.2.sku IS NULL", True),
        ("body.paid", True),
        ("body.paid = FALSE", False),
        ("body.name = 'Ann'", True),
        ("body.lines IS NULL", True),
        ("body.note IS NULL", True),
        ("body.nothing IS NULL", True),
        ("body.amount.more IS NULL", True),
        ("region = 'EU'", True),
        ("_bytes > 10 AND _bytes < 1000", True),
        ("_key = 'acc-2'", False),
    ],
)
def test_a_condition_looks_at_key_tag_headers_and_fields_of_the_body(text: str, fits: bool) -> None:
    body = {"amount": 250, "lines": [{"sku": "milk"}, {"sku": "tea"}], "paid": True, "name": "Ann", "note": None}  # fmt: skip
    assert (MessageFilter(text).select([record(body)]) != []) is fits


@given(st.binary(max_size=60))
def test_a_body_that_is_no_json_fits_no_condition_over_it(raw: bytes) -> None:
    condition = MessageFilter("body.a = 1 OR body.a <> 1")
    try:
        parsed = json.loads(raw)
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        assert condition.select([record(raw)]) == []


def test_a_header_does_not_stand_for_a_field_of_the_body() -> None:
    forged = Record(QueueRef("t", 0), 0, "", "", {"body.amount": "5"}, b"{}", 1, 1)
    assert MessageFilter("body.amount = 5").select([forged]) == []


@pytest.mark.parametrize(
    ("text", "column"),
    [("body.amount >", 14), ("amount == 3", 9), ("__import__('os')", 11), ("a = 'x", 5)],
)
def test_a_wrong_condition_says_where(text: str, column: int) -> None:
    with pytest.raises(ValueError, match=f"column {column}:"):
        MessageFilter(text)


@pytest.mark.parametrize(
    ("text", "asks"),
    [("_key = 'a' OR _bytes > 3 OR _tag = 'b'", False), ("body.a = 1", True), ("region = 'EU'", True)],
)  # fmt: skip
def test_a_condition_says_whether_it_looks_at_content(text: str, asks: bool) -> None:
    assert MessageFilter(text).asks_content is asks


async def test_a_search_goes_on_where_the_one_before_ended() -> None:
    topic, after, offsets = Topic(5, 0, 4), "", []
    told = []
    while True:
        part = await found(topic, "body.n <> 1", after=after, limit=2)
        offsets += [(one.queue.queue_id, one.offset) for one in part.records]
        told.append((part.searched, part.of, part.next))
        if not (after := part.next):
            break
    assert offsets == [(0, 0), (0, 2), (0, 3), (0, 4), (2, 0), (2, 2), (2, 3)]
    assert told == [(3, 9, "0:3"), (5, 9, "0:5"), (8, 9, "2:3"), (9, 9, "")]


async def test_a_search_ends_at_the_last_message_that_fits() -> None:
    assert await found(Topic(2), limit=2) == Searched(Topic(2).queues[0], 2, 2, "")


async def test_a_search_looks_through_so_many_messages_and_for_so_long(monkeypatch) -> None:
    monkeypatch.setattr(module, "SEARCHED_MAX", 3)
    part = await found(Topic(9), "body.n > 100")
    assert (part.records, part.searched, part.of, part.next) == ([], 4, 9, "0:4")
    times = iter([0.0, 0.5, 1.0, 2.0])
    monkeypatch.setattr(module, "SEARCHED_MAX", 100)
    part = await found(Topic(9), "body.n > 100", clock=lambda: next(times))
    assert (part.searched, part.next) == (4, "0:4")


async def test_a_search_begins_at_a_time_and_in_one_queue() -> None:
    part = await found(Topic(5, 5), queue=1, since_ms=3)
    assert [(one.queue.queue_id, one.offset) for one in part.records] == [(1, 3), (1, 4)]
    assert (part.searched, part.of) == (2, 2)
    with pytest.raises(QueueNotFound, match="queues 0 to 1, not 7"):
        await found(Topic(5, 5), queue=7)


@pytest.mark.parametrize("after", ["here", "0", "0:x", "-1:0", "0:" + "9" * 60])
async def test_a_place_that_is_none_is_refused(after: str) -> None:
    with pytest.raises(ValueError, match="queue:offset"):
        await found(Topic(3), after=after)


async def test_messages_that_are_gone_do_not_hold_a_search_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = Topic(3)

    async def page(_queue: QueueRef, offset: int) -> tuple[list[Record], int]:
        return [], offset

    monkeypatch.setattr(topic, "page", page)
    assert (await found(topic)).next == ""


async def test_the_last_messages_that_fit_are_those_of_the_end() -> None:
    admin: Any = Topic(9)
    last = await last_that_fit(admin, "t", MessageFilter("body.n < 8"), 2)
    assert [one.offset for one in last.records] == [6, 7]
    assert (last.searched, last.of) == (9, 9)


async def test_the_end_of_a_topic_is_so_many_messages_over_all_its_queues(monkeypatch) -> None:
    monkeypatch.setattr(module, "LAST_SEARCHED_MAX", 10)
    monkeypatch.setattr(module, "_LAST_PIECE_MAX", 2)
    topic: Any = Topic(1, 9, 0, 9)
    last = await last_that_fit(topic, "t", MessageFilter("body.n >= 0"), 100)
    places = [(one.queue.queue_id, one.offset) for one in last.records]
    assert places == [(0, 0), *((1, n) for n in range(4, 9)), *((3, n) for n in range(5, 9))]
    assert (last.searched, last.of) == (10, 19)
    (one,) = (await last_that_fit(topic, "t", MessageFilter("body.n >= 0"), 1, [1])).records
    assert (one.queue.queue_id, one.offset) == (1, 8)
    with pytest.raises(QueueNotFound, match="queues 0 to 3, not 7"):
        await last_that_fit(topic, "t", MessageFilter("body.n >= 0"), 1, [7])


async def test_the_end_of_a_topic_is_searched_for_so_long_and_up_to_so_many_bytes(
    monkeypatch,
) -> None:
    topic: Any = Topic(*[30] * 1_000)
    condition, times = MessageFilter("body.n >= 0"), iter([0.0, 0.5, 1.9, 2.0])
    last = await last_that_fit(topic, "t", condition, 100, clock=lambda: next(times))
    assert (last.searched, last.of, len(last.records)) == (40, 30_000, 40)
    monkeypatch.setattr(module, "_LAST_BYTES_MAX", 1)
    last = await last_that_fit(topic, "t", condition, 100)
    assert (last.searched, len(last.records)) == (20, 20)
    assert (await last_that_fit(topic, "t", condition, 0)).records == []


async def test_a_condition_over_content_needs_the_right_to_see_it() -> None:
    topic = Topic(2, allowed=False)
    admin: Any = topic
    with pytest.raises(NotPermitted, match="needs consume on topic:t"):
        await found(topic)
    with pytest.raises(NotPermitted):
        await last_that_fit(admin, "t", MessageFilter("region = 'EU'"), 1)
    assert topic.asked == ["consume topic:t"] * 2
    assert len((await found(topic, "_key LIKE 'acc%'")).records) == 2
    await require_content(admin, "t", MessageFilter("_bytes > 1"))
    assert len(topic.asked) == 2
