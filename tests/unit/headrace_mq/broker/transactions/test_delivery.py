"""Decisions to batches."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.journal.batches import NotYet
from headrace_mq.broker.metadata import topics_file
from headrace_mq.broker.topics.topics import Topics
from headrace_mq.broker.transactions.delivery import (
    DEAD_TRANSACTIONS_QUEUE,
    ID_HEADER,
    PRODUCER_ID,
    TOPIC_HEADER,
    Decisions,
)
from headrace_mq.broker.transactions.journal import BundleDecision, DecidedPart
from headrace_mq.errors import QueueFrozen, TopicNotFound
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import FreezeQueues
from headrace_mq.protocol.batch import (
    Columns,
    assign,
    check_whole,
    decode_columns,
    encode_batch,
    read_header,
)
from headrace_mq.protocol.bodies import CreateTopic, encode
from headrace_mq.protocol.keys import queue_for_key
from headrace_mq.protocol.transactions import TRANSACTION_QUEUE, Bundle, BundlePart

T = QueueRef("t", 1)
BODIES = [b"a", b"b", b"c"]


class Journal:
    """Holds one bundle at offset 4, or keeps it on a slow disk."""

    def __init__(self) -> None:
        columns = Columns(["k", "", "j"], ["x", "y", ""], [{"h": "1"}, {}, {}], BODIES, [0, 5, 9])
        self.inner = bytes(encode_batch(T, columns, born_first_ms=100, producer_id=77))
        bundle = Bundle("g", "c", ["one", "two"], [BundlePart(self.inner, [0, 1, 0])])
        outer = Columns([], [], [], [encode(bundle)], [])
        self.batch = encode_batch(TRANSACTION_QUEUE, outer, born_first_ms=1)
        assign(self.batch, base_offset=4, position=0, appended_at_ms=9, epoch=1)
        self.on_disk = False

    def read(self, queue: QueueRef, offset: int, bytes_max: int) -> list[bytes]:
        assert (queue, bytes_max) == (TRANSACTION_QUEUE, 1)
        return [bytes(self.batch)] if offset == 4 else []

    def read_now(self, queue: QueueRef, offset: int, bytes_max: int) -> list[bytes] | None:
        return None if self.on_disk else self.read(queue, offset, bytes_max)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    made = Topics(topics_file(tmp_path), default_queues=2, auto_create=True)
    made.load([])
    made.create(CreateTopic("t", 2))
    return made


@pytest.fixture
def decisions(journal: Journal, topics: Topics) -> Iterator[Decisions]:
    made = Decisions(journal, topics, epoch=3)
    made.bundle(4, wait=False)
    yield made
    made.forget_bundles()


def columns_of(batch: Any) -> Columns:
    return decode_columns(batch, check_whole(batch))


def test_a_batch_that_is_committed_as_a_whole_is_passed_on_as_it_came(
    decisions: Decisions, journal: Journal
) -> None:
    whole = BundleDecision(4, [0, 1], [], [])
    (part,) = decisions.number([whole]).parts
    batch = decisions.batch_of(whole, part, 3)
    assert batch is not None
    header = check_whole(batch)
    assert (header.queue, header.producer_id, header.producer_epoch, header.first_sequence) == (
        T,
        PRODUCER_ID,
        3,
        0,
    )
    assert columns_of(batch) == columns_of(journal.inner)
    assert decisions.batch_of(whole, part, 3) == batch


def test_of_other_batches_the_records_that_are_committed_are_taken(decisions: Decisions) -> None:
    first = BundleDecision(4, [0], [1], [])
    (part,) = decisions.number([first]).parts
    batch = decisions.batch_of(first, part, 3)
    assert columns_of(batch) == Columns(
        ["k", "j"], ["x", ""], [{"h": "1"}, {}], [b"a", b"c"], [0, 9]
    )


def test_sequences_of_a_queue_go_on_from_decision_to_decision(decisions: Decisions) -> None:
    one, two = BundleDecision(4, [0], [], []), BundleDecision(4, [1], [], [])
    numbered = [*decisions.number([one]).parts, *decisions.number([two]).parts]
    assert [(part.queue_id, part.first_sequence) for part in numbered] == [(1, 0), (1, 2)]


@pytest.mark.parametrize("gone", [False, True])
def test_messages_of_a_frozen_queue_are_divided_among_the_open_ones(
    journal: Journal, topics: Topics, decisions: Decisions, gone: bool
) -> None:
    topics.create(CreateTopic("t", 3))
    topics.freeze(FreezeQueues("t", [1, 2], writing=True, reading=True, frozen=True))
    if gone:
        topics.delete("t", 1, {1: 0, 2: 0})
        topics.create(CreateTopic("t", 1))
    else:
        topics.freeze(FreezeQueues("t", [2], writing=True, reading=True, frozen=False))
    whole = BundleDecision(4, [0, 1], [], [])
    decided = decisions.number([whole])
    found = {}
    for part in decided.parts:
        batch = decisions.batch_of(whole, part, 3)
        assert batch is not None
        assert decisions.batch_of(whole, part, 3) == batch
        header = check_whole(batch)
        assert (header.producer_id, header.first_sequence) == (PRODUCER_ID, 0)
        found[header.queue.queue_id] = columns_of(batch).bodies
    if gone:
        assert found == {0: BODIES}
        return
    # Those with a key by that, and the other one by its place.
    shares = [[0, 2][queue_for_key(key, 2)] if key else [0, 2][1] for key in ("k", "", "j")]
    assert found == {
        queue: [body for body, its in zip(BODIES, shares, strict=True) if its == queue]
        for queue in sorted(set(shares))
    }


def test_a_bundle_is_refused_where_no_queue_of_its_topic_takes_it(
    topics: Topics, decisions: Decisions
) -> None:
    decisions.check_takes(QueueRef("t", 1))
    decisions.check_takes(QueueRef("t", 7))
    with pytest.raises(TopicNotFound):
        decisions.check_takes(QueueRef("other", 1))
    topics.freeze(FreezeQueues("t", [1], writing=True, reading=True, frozen=True))
    decisions.check_takes(QueueRef("t", 1))
    topics.freeze(FreezeQueues("t", [0], writing=True, reading=True, frozen=True))
    with pytest.raises(QueueFrozen):
        decisions.check_takes(QueueRef("t", 1))
    topics.create(CreateTopic("state", 2, "compact"))
    topics.freeze(FreezeQueues("state", [1], writing=True, reading=True, frozen=True))
    decisions.check_takes(QueueRef("state", 0))
    with pytest.raises(QueueFrozen):
        decisions.check_takes(QueueRef("state", 1))


def test_dead_letters_name_the_queue_they_were_for(decisions: Decisions) -> None:
    decision = BundleDecision(4, [0], [], [1])
    committed, aside = decisions.number([decision]).parts
    assert (committed.aside, aside.aside) == (False, True)
    batch = decisions.batch_of(decision, aside, 3)
    assert batch is not None
    assert read_header(batch).queue == DEAD_TRANSACTIONS_QUEUE
    (headers,) = columns_of(batch).headers
    assert (headers[TOPIC_HEADER], headers[ID_HEADER]) == ("t", "two")


def test_a_queue_that_is_gone_is_replaced_by_the_one_of_the_dead(
    decisions: Decisions, topics: Topics
) -> None:
    topics.delete("t", 0, {})
    (part,) = decisions.number([BundleDecision(4, [0], [], [])]).parts
    assert QueueRef(part.topic, part.queue_id) == DEAD_TRANSACTIONS_QUEUE


def test_messages_that_their_queue_refuses_are_kept_without_a_sequence(
    decisions: Decisions, topics: Topics
) -> None:
    decision = BundleDecision(4, [0, 1], [], [])
    (part,) = decisions.number([decision]).parts
    dead = decisions.dead_batch_of(decision, part)
    assert dead is not None
    assert (read_header(dead).queue, read_header(dead).producer_id) == (DEAD_TRANSACTIONS_QUEUE, 0)
    assert topics.find(DEAD_TRANSACTIONS_QUEUE.topic) is not None
    assert decisions.number([decision]).parts[0].first_sequence == part.first_sequence


def test_a_bundle_from_a_slow_disk_is_not_waited_for(
    decisions: Decisions, journal: Journal
) -> None:
    decisions.forget_bundles()
    journal.on_disk = True
    with pytest.raises(NotYet):
        decisions.bundle(4, wait=False)
    assert decisions.bundle(4, wait=True) is not None


def test_a_bundle_that_cannot_be_read_is_lost_and_nothing_follows_from_it(
    decisions: Decisions,
) -> None:
    assert decisions.bundle(5, wait=False) is None
    lost = BundleDecision(5, [0], [], [])
    assert decisions.number([lost]).parts == []
    assert decisions.batch_of(lost, DecidedPart("t", 0, 0, 5, 0), 3) is None
    assert decisions.dead_batch_of(lost, DecidedPart("t", 0, 0, 5, 0)) is None


def test_memory_is_full_at_its_limit_and_empty_again(
    decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not decisions.is_full
    monkeypatch.setattr("headrace_mq.broker.transactions.delivery.BYTES_MAX", 10)
    assert decisions.is_full
    decisions.forget_bundles()
    assert not decisions.is_full
