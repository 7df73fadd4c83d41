from collections import Counter
from types import SimpleNamespace

import pytest

from headrace_mq.broker.state import check_room
from headrace_mq.errors import BrokerStopping, ResponseCode, StoreFull
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import Frame


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 100])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
async def test_every_queue_comes_first_equally_often_for_every_subset_of_the_callers(
    broker, count: int, stride: int
) -> None:
    turns = [broker._state.next_turn(count) for _ in range(100 * count * stride)]
    first = Counter(turns[::stride])
    assert set(first) == set(range(count))
    assert max(first.values()) - min(first.values()) <= 6


async def test_the_largest_batch_fits_a_frame_both_ways(start) -> None:
    state = (await start(frame_bytes_max=1 << 20))._state
    assert state.batch_bytes_max + state.states_bytes_max == state.body_bytes_max
    assert state.body_bytes_max + 12 == 1 << 20


async def test_messages_are_refused_for_the_disk_or_for_the_archive(broker) -> None:
    watermarks = broker._state.watermarks
    broker._state.check_room()
    check_room(watermarks, SimpleNamespace(refusal=""))
    with pytest.raises(StoreFull, match="the archive is behind"):
        check_room(watermarks, SimpleNamespace(refusal="the archive is behind"))
    watermarks.refusal = "the disk is nearly full"
    with pytest.raises(StoreFull, match="the disk is nearly full"):
        broker._state.check_room()


async def test_a_forgotten_connection_leaves_no_trace(broker, connect) -> None:
    client = await connect(broker, "gone")
    state = broker._state
    connection = state.clients["gone"]
    await client.ask(RequestCode.DESCRIBE_BROKER)
    state.forget(connection)
    assert "gone" not in state.clients
    state.forget(connection)


@pytest.mark.parametrize("ends_later", [False, True])
async def test_an_answer_to_a_change_waits_for_the_audit_and_then_for_the_replicas(
    broker, monkeypatch, ends_later: bool
) -> None:
    state, durable, replicas, sent = broker._state, [], [], []
    connection = SimpleNamespace(answer=lambda *parts: sent.append(parts))
    frame = Frame(RequestCode.RELEASE_MESSAGES, 1, 0, 7, memoryview(b""))
    followers = SimpleNamespace(documents=SimpleNamespace(end=3), hold=replicas.append)
    audit = SimpleNamespace(
        changes=1, finish=lambda *_: None, hold=lambda *both: durable.append(both)
    )
    with monkeypatch.context() as patched:
        patched.setattr(state, "followers", followers)
        patched.setattr(state, "audit", audit)
        if ends_later:
            state.answer_later(connection, frame, b"done")
        else:
            state.answer_held(connection, frame, (b"done",), documents=2, changes=0)
        answer, fail = durable.pop()
        assert (sent, replicas) == ([], [])
        answer()
        assert sent == []
        replicas.pop()()
        assert sent == [(ResponseCode.OK, 7, b"done")]
        fail(BrokerStopping("outcome unknown"))
        assert sent.pop()[:2] == (ResponseCode.BROKER_STOPPING, 7)
        state.answer_held(connection, frame, (b"same",), documents=3, changes=1)
        assert (sent[1:], replicas, durable) == ([(ResponseCode.OK, 7, b"same")], [], [])
