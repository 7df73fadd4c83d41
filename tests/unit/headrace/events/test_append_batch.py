"""Which streams leave in which batch."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.events.append_batch import Batching, QueuedStream


def queued(stream, generation: int = 0) -> QueuedStream:
    return QueuedStream(stream=stream, generation=generation, settled=lambda *_: None)


def test_streams_leave_in_the_order_in_which_they_came(stream):
    batching = Batching(streams_max=10)
    streams = [queued(stream("a", 1)), queued(stream("b", 1)), queued(stream("a", 2))]
    for each in streams:
        batching.offer(each)
    assert batching.take() == streams
    assert batching.take() == []


def test_a_batch_has_a_largest_size_and_further_streams_wait(stream):
    batching = Batching(streams_max=2)
    for version in range(1, 6):
        batching.offer(queued(stream("a", version)))
    sizes = [len(batching.take()) for _ in range(4)]
    assert sizes == [2, 2, 1, 0]


def test_dropped_streams_of_earlier_generations_never_leave(stream):
    batching = Batching(streams_max=10)
    old, other, new = queued(stream("a", 2)), queued(stream("b", 1)), queued(stream("a", 2), 1)
    for each in (old, other, new):
        batching.offer(each)
    assert batching.drop("a", before_generation=1) == 1
    assert batching.take() == [other, new]


def test_a_drop_of_an_unknown_aggregate_drops_nothing(stream):
    batching = Batching(streams_max=10)
    batching.offer(queued(stream("a", 1), 3))
    assert batching.drop("b", before_generation=9) == 0
    assert batching.drop("a", before_generation=3) == 0
    assert len(batching) == 1


steps = st.lists(
    st.one_of(
        st.tuples(st.just("offer"), st.sampled_from("abc")),
        st.tuples(st.just("drop"), st.sampled_from("abc")),
        st.tuples(st.just("take"), st.none()),
    ),
    max_size=100,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps, streams_max=st.integers(1, 5))
def test_every_stream_leaves_once_in_order_unless_its_generation_was_dropped(
    stream, steps, streams_max
):
    batching = Batching(streams_max=streams_max)
    generations = dict.fromkeys("abc", 0)
    expected: list[QueuedStream] = []
    for number, (step, aggregate_id) in enumerate(steps, start=1):
        if step == "offer":
            offered = queued(stream(aggregate_id, number), generations[aggregate_id])
            expected.append(offered)
            batching.offer(offered)
        elif step == "drop":
            generations[aggregate_id] += 1
            kept = [each for each in expected if each.stream.aggregate_id != aggregate_id]
            dropped = batching.drop(aggregate_id, before_generation=generations[aggregate_id])
            assert dropped == len(expected) - len(kept)
            expected = kept
        else:
            assert batching.take() == expected[:streams_max]
            del expected[:streams_max]
        assert len(batching) == len(expected)
