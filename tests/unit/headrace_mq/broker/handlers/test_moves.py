import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.groups.offsets import NEVER
from headrace_mq.broker.handlers.moves import TARGETS, move
from headrace_mq.errors import (
    GroupNotEmpty,
    GroupNotFound,
    InvalidArgument,
    OffsetOutOfRange,
    QueueNotFound,
    StoreFull,
    TopicNotFound,
)
from headrace_mq.message import QueueRef
from headrace_mq.protocol.administration import (
    CloneOffsets,
    DeleteGroup,
    OffsetMove,
    OffsetMoves,
    OffsetsAt,
    ResetOffsets,
)
from headrace_mq.protocol.bodies import (
    CommitOffsets,
    CommittedOffset,
    JoinGroup,
    OffsetsAnswer,
    decode,
)
from headrace_mq.protocol.codes import RequestCode

Q = QueueRef("t", 0)


# --- what a move means ------------------------------------------------------------------------------


@given(
    first=st.integers(0, 20),
    count=st.integers(0, 20),
    before=st.integers(NEVER, 40),
    after=st.integers(NEVER, 40),
)
def test_repeated_and_skipped_messages_are_those_held_between_the_two_offsets(
    first: int, count: int, before: int, after: int
) -> None:
    end = first + count
    before, after = min(before, end), min(after, end)
    held = range(first, end)
    moved = move(Q, (first, end), before, after)
    assert moved.redelivered == sum(after <= offset < before for offset in held)
    assert moved.skipped == sum(before <= offset < after for offset in held)
    assert (moved.before, moved.after) == (before, after)


# --- requests -----------------------------------------------------------------------------------------


@pytest.fixture
async def broker(start, clock):
    return await start(clock=clock, offsets_flush_ms=10)


@pytest.fixture
def state(broker):
    return broker._state


@pytest.fixture
async def filled(broker, connect, clock, batch):
    """Topic t with 10 messages in queue 0, one a second, and 3 in queue 1; group g in the middle."""
    client = await connect(broker)
    await client.create("t", 2)
    for number in range(10):
        await client.produce(batch("t", 0, b"%d" % number))
        clock.now += 1_000
    await client.produce(batch("t", 1, b"a", b"b", b"c"))
    await commit(client, "g", (0, 4), (1, 3))
    return client


async def commit(client, group, *offsets) -> None:
    entries = [CommittedOffset("t", *entry) for entry in offsets]
    await client.ask(RequestCode.COMMIT_OFFSETS, CommitOffsets(group, "", 0, entries))


async def moves(client, code, asked) -> OffsetMoves:
    return decode(OffsetMoves, await client.ask(code, asked))


async def reset(client, *values, **named) -> list[tuple[int, int, int, int, int]]:
    answer = await moves(client, RequestCode.RESET_OFFSETS, ResetOffsets("g", *values, **named))
    return [(m.queue_id, m.before, m.after, m.redelivered, m.skipped) for m in answer.moves]


def standing(state, group="g") -> dict[int, int]:
    return {queue.queue_id: offset for queue, offset in state.offsets.of(group).items()}


@pytest.mark.parametrize(
    ("to", "value", "expected"),
    [
        ("earliest", 0, [(0, 4, 0, 4, 0), (1, 3, 0, 3, 0)]),
        ("latest", 0, [(0, 4, 10, 0, 6), (1, 3, 3, 0, 0)]),
        ("offset", 2, [(0, 4, 2, 2, 0), (1, 3, 2, 1, 0)]),
        ("shift", -2, [(0, 4, 2, 2, 0), (1, 3, 1, 2, 0)]),
        ("shift", 3, [(0, 4, 7, 0, 3), (1, 3, 3, 0, 0)]),
        ("shift", -9, [(0, 4, 0, 4, 0), (1, 3, 0, 3, 0)]),
        ("time", 1_700_000_006_500, [(0, 4, 7, 0, 3), (1, 3, 0, 3, 0)]),
        ("time", 1_700_000_006_000, [(0, 4, 6, 0, 2), (1, 3, 0, 3, 0)]),
        ("time", 1, [(0, 4, 0, 4, 0), (1, 3, 0, 3, 0)]),
        ("time", 1_800_000_000_000, [(0, 4, 10, 0, 6), (1, 3, 3, 0, 0)]),
    ],
)
async def test_a_group_is_moved_as_the_dry_run_said(filled, state, to, value, expected) -> None:
    assert await reset(filled, to, value, dry_run=True) == expected
    assert standing(state) == {0: 4, 1: 3}
    assert await reset(filled, to, value) == expected
    assert standing(state) == {queue: after for queue, _, after, *_ in expected}


async def test_only_the_named_queues_move(filled, state) -> None:
    assert await reset(filled, "earliest", topics=["t"], queues=[0]) == [(0, 4, 0, 4, 0)]
    assert standing(state) == {0: 0, 1: 3}


async def test_a_group_that_never_was_gets_a_place_to_begin(filled, state) -> None:
    asked = ResetOffsets("new", "latest", topics=["t"])
    answer = await moves(filled, RequestCode.RESET_OFFSETS, asked)
    assert answer.moves[0] == OffsetMove("t", 0, 0, 10, NEVER, 10, 0, 10)
    assert standing(state, "new") == {0: 10, 1: 3}


async def test_queues_without_an_offset_are_not_shifted_and_the_others_stay(filled, state) -> None:
    await filled.create("u", 1)
    answer = await moves(
        filled, RequestCode.RESET_OFFSETS, ResetOffsets("g", "shift", 1, topics=["u"])
    )
    assert answer.moves == [OffsetMove("u", 0, 0, 0, NEVER, NEVER, 0, 0)]
    assert standing(state) == {0: 4, 1: 3}


async def test_a_clone_stands_where_its_source_stands(filled, state) -> None:
    await filled.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["t"]))
    asked = CloneOffsets("g", "copy", dry_run=True)
    would = await moves(filled, RequestCode.CLONE_OFFSETS, asked)
    assert not would.moved
    assert standing(state, "copy") == {}
    done = await moves(filled, RequestCode.CLONE_OFFSETS, CloneOffsets("g", "copy"))
    assert done == OffsetMoves(moved=True, moves=would.moves)
    assert standing(state, "copy") == {0: 4, 1: 3}


async def test_a_deleted_group_is_nowhere(filled, state) -> None:
    would = await moves(filled, RequestCode.DELETE_GROUP, DeleteGroup("g", dry_run=True))
    assert [(m.before, m.after, m.redelivered) for m in would.moves] == [(4, -1, 4), (3, -1, 3)]
    assert standing(state) == {0: 4, 1: 3}
    await moves(filled, RequestCode.DELETE_GROUP, DeleteGroup("g"))
    assert standing(state) == {}
    refused = await filled.refusal(RequestCode.DELETE_GROUP, DeleteGroup("g"))
    assert isinstance(refused, GroupNotFound)


async def test_a_group_at_work_is_not_touched(filled, state) -> None:
    await filled.ask(RequestCode.JOIN_GROUP, JoinGroup("g", "m", ["t"]))
    for code, asked in [
        (RequestCode.RESET_OFFSETS, ResetOffsets("g", "earliest")),
        (RequestCode.CLONE_OFFSETS, CloneOffsets("g", "g")),
        (RequestCode.DELETE_GROUP, DeleteGroup("g")),
    ]:
        refused = await filled.refusal(code, asked)
        assert isinstance(refused, GroupNotEmpty)
        assert "1 members at work" in str(refused)
    assert standing(state) == {0: 4, 1: 3}


@pytest.mark.parametrize(
    ("code", "asked", "error"),
    [
        (RequestCode.RESET_OFFSETS, ResetOffsets("g", "nowhere"), InvalidArgument),
        (RequestCode.RESET_OFFSETS, ResetOffsets("", "latest"), InvalidArgument),
        (RequestCode.RESET_OFFSETS, ResetOffsets("h", "latest"), GroupNotFound),
        (RequestCode.RESET_OFFSETS, ResetOffsets("g", "latest", 0, ["u"]), TopicNotFound),
        (RequestCode.RESET_OFFSETS, ResetOffsets("g", "latest", 0, ["t"], [2]), QueueNotFound),
        (RequestCode.RESET_OFFSETS, ResetOffsets("g", "offset", 4), OffsetOutOfRange),
        (RequestCode.RESET_OFFSETS, ResetOffsets("g", "offset", -1), OffsetOutOfRange),
        (RequestCode.CLONE_OFFSETS, CloneOffsets("h", "copy"), GroupNotFound),
        (RequestCode.CLONE_OFFSETS, CloneOffsets("h", "copy", ["t"]), GroupNotFound),
        (RequestCode.CLONE_OFFSETS, CloneOffsets("g", "copy", ["u"]), TopicNotFound),
        (RequestCode.CLONE_OFFSETS, CloneOffsets("g", "x" * 256), InvalidArgument),
        (RequestCode.OFFSETS_AT, OffsetsAt(["u"], 0), TopicNotFound),
    ],
)
async def test_an_invalid_reset_is_refused_and_moves_no_offset(
    filled, state, code, asked, error
) -> None:
    assert isinstance(await filled.refusal(code, asked), error)
    assert standing(state) == {0: 4, 1: 3}


async def test_every_target_is_known(filled) -> None:
    await reset(filled, "earliest")
    for to in TARGETS:
        await reset(filled, to, dry_run=True)


async def test_moves_that_fit_no_answer_are_refused_before_anything_moves(start, connect) -> None:
    broker = await start(frame_bytes_max=64 << 10)
    client = await connect(broker)
    topics = ["t" * 100 + str(number) for number in range(2)]
    for topic in topics:
        await client.create(topic, 300)
    refused = await client.refusal(
        RequestCode.RESET_OFFSETS, ResetOffsets("g", "latest", topics=topics)
    )
    assert isinstance(refused, InvalidArgument)
    assert "fewer topics" in str(refused)
    assert standing(broker._state) == {}


async def test_a_reset_is_on_disk_when_it_is_answered(filled, state) -> None:
    await reset(filled, "earliest")
    assert state.offsets._file.read().groups["g"]["t"] == {0: 0, 1: 0}


async def test_a_reset_that_the_disk_refuses_fails(filled, state, monkeypatch) -> None:
    def full(_content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state.offsets._file, "write_encoded", full)
    refused = await filled.refusal(RequestCode.RESET_OFFSETS, ResetOffsets("g", "earliest"))
    assert isinstance(refused, StoreFull)
    assert "not on disk" in str(refused)
    monkeypatch.undo()
    await reset(filled, "latest")
    assert state.offsets._file.read().groups["g"]["t"] == {0: 10, 1: 3}


async def test_offsets_are_found_by_time(filled) -> None:
    body = await filled.ask(RequestCode.OFFSETS_AT, OffsetsAt(["t"], 1_700_000_003_001))
    assert decode(OffsetsAnswer, body).offsets == [
        CommittedOffset("t", 0, 4),
        CommittedOffset("t", 1, 0),
    ]


# --- taking a move back --------------------------------------------------------------------------------


async def test_a_reset_is_taken_back_once(filled, state) -> None:
    await reset(filled, "earliest")
    dry = await moves(filled, RequestCode.RESET_OFFSETS, ResetOffsets("g", "undo", dry_run=True))
    assert (dry.moved, dry.hindered) == (False, "")
    assert (dry.reset_at_ms, dry.reset_by) == (state.clock.now_ms(), dry.reset_by)
    assert dry.reset_by.startswith("127.0.0.1:")
    assert standing(state) == {0: 0, 1: 0}
    assert await reset(filled, "undo") == [(0, 0, 4, 0, 4), (1, 0, 3, 0, 3)]
    assert standing(state) == {0: 4, 1: 3}
    refused = await filled.refusal(RequestCode.RESET_OFFSETS, ResetOffsets("g", "undo"))
    assert isinstance(refused, GroupNotFound)
    assert "no move is kept" in str(refused)


async def test_a_group_that_has_not_read_past_its_old_place_goes_back_to_it(filled, state) -> None:
    await reset(filled, "earliest")
    await commit(filled, "g", (0, 2), (1, 3))
    assert await reset(filled, "undo") == [(0, 2, 4, 0, 2), (1, 3, 3, 0, 0)]


async def test_a_group_that_has_read_past_its_old_place_stays(filled, state) -> None:
    await reset(filled, "earliest", topics=["t"], queues=[0])
    await commit(filled, "g", (0, 7))
    asked = ResetOffsets("g", "undo", dry_run=True)
    dry = await moves(filled, RequestCode.RESET_OFFSETS, asked)
    assert "t/0 has read on to 7: from 4 on 3 messages would be read twice" in dry.hindered
    refused = await filled.refusal(RequestCode.RESET_OFFSETS, ResetOffsets("g", "undo"))
    assert isinstance(refused, InvalidArgument)
    assert "3 messages would be read twice" in str(refused)
    assert "`headrace group reset` moves it" in str(refused)
    assert standing(state) == {0: 7, 1: 3}


async def test_a_dry_run_leaves_no_move_to_take_back(filled, state) -> None:
    await reset(filled, "earliest", dry_run=True)
    assert state.offsets.resets.get("g") is None
    await reset(filled, "offset", 4, topics=["t"], queues=[0])
    assert state.offsets.resets.get("g") is None


async def test_a_clone_is_taken_back_and_a_deletion_is_for_good(filled, state) -> None:
    await moves(filled, RequestCode.CLONE_OFFSETS, CloneOffsets("g", "copy"))
    undone = await moves(filled, RequestCode.RESET_OFFSETS, ResetOffsets("copy", "undo"))
    assert [one.after for one in undone.moves] == [NEVER, NEVER]
    assert standing(state, "copy") == {}
    await reset(filled, "earliest")
    await moves(filled, RequestCode.DELETE_GROUP, DeleteGroup("g"))
    assert state.offsets.resets.get("g") is None


async def test_an_undo_takes_back_all_of_a_move(filled, state) -> None:
    await reset(filled, "earliest")
    asked = ResetOffsets("g", "undo", topics=["t"])
    refused = await filled.refusal(RequestCode.RESET_OFFSETS, asked)
    assert "name no topics and queues" in str(refused)


async def test_an_undo_takes_back_the_move_that_was_shown_and_no_later_one(filled, state) -> None:
    await reset(filled, "earliest")
    dry = await moves(filled, RequestCode.RESET_OFFSETS, ResetOffsets("g", "undo", dry_run=True))
    # By another operator meanwhile, and in the same millisecond.
    await reset(filled, "latest")
    for dry_run in (False, True):
        asked = ResetOffsets("g", "undo", dry.reset_at_ms, dry_run=dry_run)
        refused = await filled.refusal(RequestCode.RESET_OFFSETS, asked)
        assert isinstance(refused, InvalidArgument)
        assert "was moved once more since you looked, by 127.0.0.1:" in str(refused)
    assert standing(state) == {0: 10, 1: 3}
    dry = await moves(filled, RequestCode.RESET_OFFSETS, ResetOffsets("g", "undo", dry_run=True))
    await reset(filled, "undo", dry.reset_at_ms)
    assert standing(state) == {0: 0, 1: 0}
