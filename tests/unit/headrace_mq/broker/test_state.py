from collections import Counter

import pytest

from headrace_mq.protocol.codes import RequestCode


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


async def test_a_forgotten_connection_leaves_no_trace(broker, connect) -> None:
    client = await connect(broker, "gone")
    state = broker._state
    connection = state.clients["gone"]
    await client.ask(RequestCode.DESCRIBE_BROKER)
    state.forget(connection)
    assert "gone" not in state.clients
    state.forget(connection)
