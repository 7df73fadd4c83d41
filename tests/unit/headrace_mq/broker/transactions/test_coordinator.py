"""The transactions of a broker on a real store, with a clock moved by hand."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace_mq.broker.metadata import transactions_file
from headrace_mq.broker.transactions import coordinator
from headrace_mq.broker.transactions import delivery as transaction_delivery
from headrace_mq.broker.transactions.delivery import (
    DEAD_TRANSACTIONS_QUEUE,
    GROUP_HEADER,
    ID_HEADER,
    TOPIC_HEADER,
)
from headrace_mq.errors import (
    BrokerStopping,
    CorruptBatch,
    InvalidArgument,
    StoreFull,
    TopicNotFound,
    TransactionsFull,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, encode_batch, read_header
from headrace_mq.protocol.bodies import CreateTopic
from headrace_mq.protocol.transactions import (
    TRANSACTION_QUEUE,
    Bundle,
    BundlePart,
    EndedOtherwise,
    Outcome,
)

T, KEPT = QueueRef("t", 0), QueueRef("kept", 0)
TIMEOUT, AGAIN = 6_000, 30_000


def batch_of(queue: QueueRef, *bodies: bytes) -> bytes:
    columns = Columns([], [], [], list(bodies), [])
    return bytes(encode_batch(queue, columns, born_first_ms=5))


def bundle_of(*bodies: bytes, queues: tuple[QueueRef, ...] = (T,), group: str = "g") -> Bundle:
    """One transaction for each body, with that body in each of the queues."""
    ids = [body.decode() for body in bodies]
    parts = [BundlePart(batch_of(queue, *bodies), list(range(len(ids)))) for queue in queues]
    return Bundle(group, "client", ids, parts)


Open = Callable[..., Any]
Until = Callable[[Callable[[], object]], Awaitable[None]]


def move(rig: Any, ms: int) -> None:
    rig.clock.now += ms
    rig.clock.monotonic += ms
    rig.transactions.look()


# --- deciding ------------------------------------------------------------------------------------


async def test_a_prepared_message_is_seen_nowhere_until_it_is_committed(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2"))
    assert (rig.store.range(T), rig.undecided()) == ((0, 0), 2)
    assert (rig.transactions.undecided, rig.transactions.oldest_at_ms) == (2, rig.clock.now)
    assert (await rig.end(number, [0, 1])).otherwise == []
    # Visible when it is answered.
    assert rig.bodies() == [b"1", b"2"]
    assert (rig.undecided(), rig.transactions.oldest_at_ms) == (0, None)


async def test_rolled_back_messages_are_never_seen_and_leave_no_gap(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2", b"3"))
    await rig.end(number, [2], [1])
    assert [(r.offset, r.body) for r in rig.records()] == [(0, b"3")]
    await rig.end(number, [0])
    assert [(r.offset, r.body) for r in rig.records()] == [(0, b"3"), (1, b"1")]


async def test_all_messages_of_a_transaction_become_visible_together_in_both_logs(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2", queues=(T, KEPT)))
    await rig.end(number, [0], [1])
    assert rig.bodies(T) == rig.bodies(KEPT) == [b"1"]


async def test_a_decision_that_is_repeated_has_one_effect(open_transactions: Open) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2"))
    answers = [rig.end(number, [0], [1]) for _ in range(3)]
    assert [(await answer).otherwise for answer in answers] == [[], [], []]
    assert (await rig.end(number, [0], [1])).otherwise == []
    again = open_transactions(rig.killed("b"), epoch=2)
    assert (await again.end(number, [0], [1])).otherwise == []
    assert again.bodies() == rig.bodies() == [b"1"]


async def test_the_first_decision_holds_and_a_contrary_one_is_refused(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1"))
    await rig.end(number, [], [0])
    answer = await rig.end(number, [0])
    assert answer.otherwise == [EndedOtherwise(number, 0, Outcome.ROLLED_BACK)]
    assert rig.bodies() == []


async def test_decisions_on_what_was_never_prepared_or_by_another_group_are_refused(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1"))
    with pytest.raises(InvalidArgument, match="'other'"):
        rig.end(number, [0], group="other")
    with pytest.raises(InvalidArgument, match="prepared no"):
        rig.end(number + 1, [0])
    with pytest.raises(InvalidArgument, match="fewer transactions"):
        rig.end(number, [1])
    assert rig.undecided() == 1


async def test_many_bundles_and_decisions_go_together(open_transactions: Open) -> None:
    rig = open_transactions()
    first = await rig.prepare(*(bundle_of(b"%d" % n) for n in range(50)))
    await asyncio.gather(*(rig.end(first + n, [0]) for n in range(50)))
    assert rig.bodies() == [b"%d" % n for n in range(50)]
    # One record for all the decisions, and none that says they are done.
    assert rig.store.range(TRANSACTION_QUEUE)[1] == 51


async def test_more_decisions_than_fit_a_turn_are_all_carried_out(
    open_transactions: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_delivery, "BYTES_MAX", 300)
    rig = open_transactions()
    first = await rig.prepare(*(bundle_of(b"%d" % n) for n in range(9)))
    await asyncio.gather(*(rig.end(first + n, [0]) for n in range(9)))
    assert rig.bodies() == [b"%d" % n for n in range(9)]


# --- crashes -------------------------------------------------------------------------------------


async def test_a_transaction_prepared_before_a_crash_can_be_committed_after_it(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2"))
    await rig.end(number, [0])
    again = open_transactions(rig.killed("b"), epoch=2)
    assert again.undecided() == 1
    await again.end(number, [1])
    assert again.bodies() == [b"1", b"2"]


async def test_a_commit_that_a_crash_interrupted_is_finished_once(
    open_transactions: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2", queues=(T, KEPT)))
    appended = rig.store.append

    def stop_before_the_other_log(batch: Any, *, retention: str) -> Any:
        if read_header(batch).queue == KEPT:
            raise StoreFull("stands in for the moment of a crash")
        return appended(batch, retention=retention)

    monkeypatch.setattr(rig.store, "append", stop_before_the_other_log)
    ended = rig.end(number, [0, 1])
    await until(lambda: rig.bodies() == [b"1", b"2"])
    again = open_transactions(rig.killed("b"), epoch=2)
    await until(lambda: again.bodies(KEPT) == [b"1", b"2"])
    assert again.bodies() == [b"1", b"2"]
    monkeypatch.undo()
    await ended
    assert rig.bodies(KEPT) == [b"1", b"2"]
    assert (await again.end(number, [0, 1])).otherwise == []


async def test_a_lost_or_damaged_file_of_the_state_is_read_from_the_journal(
    open_transactions: Open, tmp_path: Path
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1", b"2"))
    await rig.end(number, [0])
    await rig.aclose()
    for name, content in (("b", None), ("c", b"junk")):
        file = tmp_path / rig.killed(name) / "metadata" / "transactions.json"
        file.unlink() if content is None else file.write_bytes(content)
        again = open_transactions(name, epoch=2)
        assert again.undecided() == 1
        assert (await again.end(number, [0, 1])).otherwise == []
        assert again.bodies() == [b"1", b"2"]


async def test_the_state_is_kept_now_and_then_so_that_a_start_reads_little(
    open_transactions: Open, until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "KEEP_BYTES", 1)
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1"))
    await until(lambda: transactions_file(rig.directory).read() is not None)
    kept = transactions_file(rig.directory).read()
    assert kept is not None
    assert [pending.number for pending in kept.pending] == [number]


# --- checks --------------------------------------------------------------------------------------


async def test_an_undecided_transaction_is_asked_for_after_the_time_out_and_again_later(
    open_transactions: Open, until: Until
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"one", b"two"))
    await rig.end(number, [0])
    asked = rig.wait_for_checks()
    move(rig, TIMEOUT - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert asked == []
    move(rig, 1)
    await until(lambda: asked)
    (check,) = asked[0]
    assert (check.number, check.index, check.transaction_id, check.attempt) == (number, 1, "two", 1)
    asked = rig.wait_for_checks()
    move(rig, AGAIN)
    await until(lambda: asked)
    assert asked[0][0].attempt == 2
    await rig.end(number, [1])
    assert rig.bodies() == [b"one", b"two"]


@pytest.mark.parametrize("leap", [-86_400_000, 86_400_000])
async def test_a_clock_that_is_set_neither_hastens_nor_delays_a_question(
    open_transactions: Open, until: Until, leap: int
) -> None:
    rig = open_transactions()
    for body in (b"1", b"2"):
        number = await rig.prepare(bundle_of(body))
        asked = rig.wait_for_checks()
        rig.clock.now += leap
        move(rig, TIMEOUT - 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert asked == []
        move(rig, 1)
        await until(lambda asked=asked: asked)
        await rig.end(number, [0])


async def test_checks_do_not_count_while_no_producer_is_connected(
    open_transactions: Open, until: Until
) -> None:
    rig = open_transactions(transaction_checks_max=1)
    await rig.prepare(bundle_of(b"1"))
    move(rig, TIMEOUT + 100 * AGAIN)
    for _ in range(20):
        await asyncio.sleep(0)
    asked = rig.wait_for_checks("other", "other client")
    await until(lambda: asked)
    assert asked[0][0].attempt == 1
    assert rig.undecided() == 1


async def test_another_producer_is_asked_only_when_the_first_is_gone_or_silent(
    open_transactions: Open, until: Until
) -> None:
    rig = open_transactions()
    await rig.prepare(bundle_of(b"1"))
    first = rig.wait_for_checks("s", "client")
    move(rig, TIMEOUT)
    await until(lambda: first)
    other = rig.wait_for_checks("other", "other client")
    # The first one is there, and does not wait for questions now.
    move(rig, AGAIN)
    for _ in range(20):
        await asyncio.sleep(0)
    assert other == []
    rig.transactions.forget("s")
    rig.transactions.look()
    await until(lambda: other)
    assert other[0][0].attempt == 2


async def test_after_the_last_question_the_messages_are_kept_aside_and_never_delivered(
    open_transactions: Open, until: Until
) -> None:
    rig = open_transactions(transaction_checks_max=2)
    number = await rig.prepare(bundle_of(b"one", b"two", queues=(T, KEPT)))
    await rig.end(number, [0])
    for attempt in (1, 2):
        asked = rig.wait_for_checks()
        move(rig, AGAIN)
        await until(lambda asked=asked: asked)
        assert asked[0][0].attempt == attempt
    rig.wait_for_checks()
    move(rig, AGAIN)
    await until(lambda: rig.undecided() == 0)
    await until(lambda: len(rig.records(DEAD_TRANSACTIONS_QUEUE)) == 2)
    aside = rig.records(DEAD_TRANSACTIONS_QUEUE)
    assert [record.body for record in aside] == [b"two", b"two"]
    assert [record.headers for record in aside] == [
        {TOPIC_HEADER: topic, ID_HEADER: "two", GROUP_HEADER: "g"} for topic in ("t", "kept")
    ]
    late = await rig.end(number, [1])
    assert late.otherwise == [EndedOtherwise(number, 1, Outcome.KEPT_ASIDE)]
    assert rig.bodies() == rig.bodies(KEPT) == [b"one"]


async def test_questions_count_on_after_a_crash(open_transactions: Open, until: Until) -> None:
    rig = open_transactions(transaction_checks_max=5)
    await rig.prepare(bundle_of(b"1"))
    asked = rig.wait_for_checks()
    move(rig, TIMEOUT)
    await until(lambda: asked)
    await until(lambda: rig.store.range(TRANSACTION_QUEUE)[1] == 2)
    again = open_transactions(rig.killed("b"), epoch=2)
    asked = again.wait_for_checks()
    move(again, AGAIN)
    await until(lambda: asked)
    assert asked[0][0].attempt == 2


async def test_before_its_segment_is_deleted_an_undecided_transaction_is_kept_aside(
    open_transactions: Open, until: Until
) -> None:
    rig = open_transactions()
    await rig.prepare(bundle_of(b"1"))
    while len(rig.store.segments("transient")) < 3:
        rig.store.append(bytearray(batch_of(T, b"x" * 10_000)), retention="transient")
        await rig.store.durable()
    segments = rig.store.segments("transient")
    before = segments[1].base
    assert rig.transactions.spare(segments, before) == segments[0].base
    await until(lambda: rig.bodies(DEAD_TRANSACTIONS_QUEUE) == [b"1"])
    await until(lambda: rig.transactions.spare(segments, before) == before)
    assert rig.undecided() == 0


# --- refusals ------------------------------------------------------------------------------------


async def test_as_many_transactions_are_undecided_as_may_be(open_transactions: Open) -> None:
    rig = open_transactions(transactions_max=2)
    number = await rig.prepare(bundle_of(b"1", b"2"))
    with pytest.raises(TransactionsFull, match="at most 2"):
        rig.offer(bundle_of(b"3"))
    await rig.end(number, [0])
    rig.offer(bundle_of(b"3"))


async def test_invalid_bundles_are_refused(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    with pytest.raises(TopicNotFound):
        rig.offer(bundle_of(b"1", queues=(QueueRef("nowhere", 0),)))
    other = encode_batch(
        QueueRef("%TRANSACTION%", 1), Columns([], [], [], [b""], []), born_first_ms=1
    )
    with pytest.raises(InvalidArgument, match="one queue"):
        rig.transactions.check(read_header(other), memoryview(other))
    own = encode_batch(
        TRANSACTION_QUEUE,
        Columns([], [], [{"%transaction-kind": "event"}], [b""], []),
        born_first_ms=1,
    )
    with pytest.raises(InvalidArgument, match="no headers"):
        rig.transactions.check(read_header(own), memoryview(own))
    junk = bytearray(own)
    junk[-4:] = b"junk"
    with pytest.raises(CorruptBatch):
        rig.transactions.check(read_header(junk), memoryview(junk))


async def test_a_full_disk_refuses_decisions_and_takes_them_when_there_is_room(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1"))
    rig.full = True
    with pytest.raises(StoreFull):
        await rig.end(number, [0])
    rig.full = False
    await rig.end(number, [0])
    assert rig.bodies() == [b"1"]


async def test_messages_committed_to_a_deleted_topic_become_dead_letters(
    open_transactions: Open,
) -> None:
    rig = open_transactions()
    rig.topics.create(CreateTopic("gone", 1))
    number = await rig.prepare(bundle_of(b"1", queues=(QueueRef("gone", 0),)))
    rig.topics.delete("gone", 0, {})
    rig.topics.create(CreateTopic(DEAD_TRANSACTIONS_QUEUE.topic, 1, "forever"))
    await rig.end(number, [0])
    (aside,) = rig.records(DEAD_TRANSACTIONS_QUEUE)
    assert (aside.body, aside.headers[TOPIC_HEADER]) == (b"1", "gone")


async def test_a_coordinator_that_stops_says_so(open_transactions: Open) -> None:
    rig = open_transactions()
    number = await rig.prepare(bundle_of(b"1"))
    await rig.transactions.aclose()
    with pytest.raises(BrokerStopping):
        rig.end(number, [0])
