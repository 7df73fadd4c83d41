"""A copy has every message once, in its queue and order, however often it was broken off."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.transports.kafka.topic_reader import _header
from headrace.transports.topic_copy import CopyRefused, compare_topics, copy_topic
from headrace.transports.topic_reader import Part
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns
from headrace_mq.protocol.bodies import QueueRange

TOPIC = "shop.events"
Entry = tuple[str, str, tuple[tuple[str, str], ...], bytes]


class BrokenOff(Exception):
    """The process was killed here."""


@dataclass
class Queues:
    """Queues in memory, as both ports show them.

    Args:
        firsts: where each queue begins; its messages before that are gone or never were.
        starts: the offset of its first message ever.
        page: messages of one batch.
        writes_max: batches until the process is killed.
    """

    held: list[list[Entry | None]]
    firsts: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    page: int = 3
    writes_max: int = 1_000_000

    def ranges(self, _topics: object) -> list[QueueRange]:
        found = []
        for number, messages in enumerate(self.held):
            first = self.firsts[number] if self.firsts else 0
            start = self.starts[number] if self.starts else 0
            found.append(QueueRange(TOPIC, number, first, first + len(messages), start))
        return found

    def read(self, queue: QueueRef, start: int, end: int, **_choices: int) -> Iterator[Part]:
        first = self.ranges([])[queue.queue_id].first
        begin = first + (start - first) // self.page * self.page
        for base in range(begin, end, self.page):
            found = self.held[queue.queue_id][base - first : base - first + self.page]
            if None in found:
                gap = _header(queue, base, len(found), 0)
                yield gap, Columns([], [], [], [], []), len(found), len(found)
                continue
            keys, tags, headers, bodies = zip(*[each for each in found if each], strict=True)
            columns = Columns([*keys], [*tags], [dict(some) for some in headers], [*bodies], [])
            low, high = max(start - base, 0), min(end - base, len(found))
            yield _header(queue, base, len(found), 0), columns, low, high

    def offsets_at(self, *_of: object) -> dict[QueueRef, int]:
        raise NotImplementedError

    def is_settled(self, _topic: str) -> bool:
        return True

    def ensure(self, _topic: str, *, queues: int, forever: bool) -> None:
        assert forever
        while len(self.held) < queues:
            self.held.append([])

    def write(self, queue: QueueRef, messages: Columns) -> range:
        if not self.writes_max:
            raise BrokenOff
        self.writes_max -= 1
        end = self.ranges([])[queue.queue_id].end
        for number, body in enumerate(messages.bodies):
            key, tag = messages.keys[number], messages.tags[number]
            some = tuple(messages.headers[number].items())
            self.held[queue.queue_id].append((key, tag, some, body))
        return range(end, end + len(messages.bodies))

    def committed(self, _group: str, _topic: str) -> Mapping[int, int]:
        return {}

    def commit(self, *_of: object) -> None:
        raise NotImplementedError


entries = st.tuples(
    st.text("ab", max_size=2), st.sampled_from(["", "t"]), st.just((("h", "1"),)), st.binary()
)
queues = st.lists(st.lists(entries, max_size=9), min_size=1, max_size=3)


def copied(source: Queues, target: Queues) -> int:
    return copy_topic(source, target, target, TOPIC, forever=True)


@given(queues, st.lists(st.integers(0, 3), max_size=4), st.integers(0, 50), st.integers(0, 50))
def test_a_copy_that_was_broken_off_goes_on(
    held: list[list[Entry]], kills: list[int], first: int, base: int
) -> None:
    source = Queues([[*each] for each in held], firsts=[first] * len(held), page=2)
    target = Queues([[] for _ in held], [base] * len(held), [base] * len(held))
    for writes in kills:
        target.writes_max = writes
        try:
            copied(source, target)
        except BrokenOff:
            continue
    target.writes_max = 1_000
    copied(source, target)
    assert target.held == source.held
    found = compare_topics(source, target, TOPIC)
    assert [each.messages for each in found] == [len(each) for each in held]
    assert {each.shift for each in found} == {first - base}
    assert copied(source, target) == 0


@given(queues, st.data())
def test_any_difference_is_found(held: list[list[Entry]], data: st.DataObject) -> None:
    source = Queues([[*each] for each in held])
    places = [(queue, at) for queue, each in enumerate(held) for at in range(len(each))]
    if not places:
        return
    queue, at = data.draw(st.sampled_from(places))
    other = data.draw(entries.filter(lambda entry: entry != held[queue][at]))
    changed: list[list[Entry | None]] = [[*each] for each in held]
    changed[queue][at] = other
    with pytest.raises(CopyRefused, match=f"queue {queue} .* another message at offset {at} "):
        compare_topics(source, Queues(changed), TOPIC)


def test_fields_do_not_run_into_each_other() -> None:
    source, target = Queues([[("ab", "", (), b"")]]), Queues([[("a", "b", (), b"")]])
    with pytest.raises(CopyRefused, match="another message"):
        compare_topics(source, target, TOPIC)


def entry(text: str) -> Entry:
    return text, "", (("h", "1"),), text.encode()


@pytest.mark.parametrize(
    ("source", "target", "sentence"),
    [
        (Queues([[entry("a")]]), Queues([[entry("a"), entry("b")]]), "something else writes there"),
        (Queues([[entry("a")]]), Queues([[], []]), "has 1 queues at the source and 2"),
        (Queues([[entry("a")]]), Queues([[]], [4], [0]), "has let its first messages go"),
        (Queues([[entry("a"), None]], page=1), Queues([[]]), "no message .* at offset 1, so"),
    ],
)
def test_what_cannot_be_copied_is_refused(source: Queues, target: Queues, sentence: str) -> None:
    with pytest.raises(CopyRefused, match=sentence):
        copied(source, target)


def test_messages_of_others_at_the_target_are_noticed() -> None:
    class Shared(Queues):
        def write(self, queue: QueueRef, messages: Columns) -> range:
            self.held[queue.queue_id].append(entry("theirs"))
            return super().write(queue, messages)

    with pytest.raises(CopyRefused, match="something else writes to queue 0"):
        copied(Queues([[entry("a")]]), Shared([[]]))


def test_messages_that_came_meanwhile_are_noticed() -> None:
    source, target = Queues([[entry("a")]]), Queues([[]])
    copied(source, target)
    source.held[0].append(entry("b"))
    with pytest.raises(CopyRefused, match="2 messages at the source, and 1 at the target"):
        compare_topics(source, target, TOPIC)
