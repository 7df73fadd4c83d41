"""The decision: go on, begin anew, or refuse; for any reader, topic and store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lineage.verdict import Kept, Mark, Verdict, judge, refusal, renewed, why_trimmed
from headrace.transports.base import TopicLineage

ids = st.sampled_from(["", "one", "two"])
known = st.none() | st.sampled_from(["one", "two"])
streams = st.none() | st.tuples(st.sampled_from("ab"), st.sampled_from("xy"))
marks = st.dictionaries(
    st.integers(0, 2),
    st.builds(
        Mark,
        next_offset=st.integers(0, 9),
        message_id=st.sampled_from("xyz"),
        stream=streams,
    ),
    max_size=3,
)
kepts = st.builds(
    Kept,
    topic=known,
    store=known,
    marks=marks,
    offsets=st.dictionaries(st.integers(0, 2), st.integers(0, 9), max_size=3),
)
topics = st.builds(
    TopicLineage,
    identity=ids,
    ranges=st.dictionaries(
        st.integers(0, 2), st.integers(0, 9).map(lambda end: (0, end)), max_size=3
    ),
)
founds = st.dictionaries(
    st.tuples(st.integers(0, 2), st.integers(1, 9)), st.sampled_from("xyz"), max_size=4
)
missings = st.frozensets(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=2)


@given(kepts, topics, founds, st.sampled_from(["one", "two"]), missings)
def test_each_verdict_has_its_reason(
    kept: Kept,
    topic: TopicLineage,
    found: dict[tuple[int, int], str],
    store: str,
    missing: frozenset[tuple[str, str]],
) -> None:
    verdict = judge(kept, topic=topic, found=found, store=store, missing=missing)
    other_store = kept.store not in {None, store}
    older_store = any(mark.stream in missing for mark in kept.marks.values())
    other_topic = bool(topic.identity) and kept.topic not in {None, topic.identity}
    ends = {number: end for number, (_, end) in topic.ranges.items()}
    places = [*kept.offsets.items(), *((n, mark.next_offset) for n, mark in kept.marks.items())]
    shorter = any(offset > ends.get(number, 0) for number, offset in places)
    differs = any(
        found.get((number, mark.next_offset), mark.message_id) != mark.message_id
        for number, mark in kept.marks.items()
    )
    if other_store:
        assert verdict is Verdict.OTHER_STORE
    elif older_store:
        assert verdict is Verdict.OLDER_STORE
    elif other_topic or shorter or differs:
        assert verdict is Verdict.FROM_START
    else:
        assert verdict is Verdict.GO_ON
    assert verdict.refused == (other_store or older_store)


@given(kepts, topics, founds, st.dictionaries(st.integers(0, 2), st.integers(0, 9), max_size=3))
def test_a_reader_of_lost_messages_goes_back_unless_something_else_is_wrong(
    kept: Kept, topic: TopicLineage, found: dict[tuple[int, int], str], changed: dict[int, int]
) -> None:
    verdict = judge(kept, topic=topic, found=found, store="one", missing=[], changed=changed)
    # The same without all that has changed.
    rest = Kept(
        topic=kept.topic,
        store=kept.store,
        marks={
            number: mark
            for number, mark in kept.marks.items()
            if mark.next_offset <= changed.get(number, 9)
        },
        offsets={n: offset for n, offset in kept.offsets.items() if offset <= changed.get(n, 9)},
    )
    seen = {**topic.ranges, **{number: (0, end) for number, end in changed.items()}}
    without = judge(
        rest,
        topic=TopicLineage(identity=topic.identity, ranges=seen),
        found=found,
        store="one",
        missing=[],
    )
    if verdict is Verdict.BACK:
        assert without is Verdict.GO_ON
        assert (rest.marks, rest.offsets) != (kept.marks, kept.offsets)
    else:
        assert verdict is without
    assert judge(kept, topic=topic, found=found, store="one", missing=[], changed={}) is judge(
        kept, topic=topic, found=found, store="one", missing=[]
    )


@given(kepts, st.dictionaries(st.integers(0, 2), st.integers(1, 9)), st.booleans())
def test_renewed_marks_are_those_that_hold_with_the_epochs_of_now(
    kept: Kept, epochs: dict[int, int], from_start: bool
) -> None:
    changed = dict.fromkeys(epochs, 5)
    topic = TopicLineage(identity="one", ranges={}, epochs=epochs)
    fresh = renewed(kept, topic, changed=changed, from_start=from_start)
    after = {**({} if from_start else kept.marks), **fresh}
    for number, epoch in epochs.items():
        mark, before = after[number], kept.marks.get(number)
        assert mark.epoch == epoch
        if before is None or from_start:
            assert (mark.next_offset, mark.stream) == (0, None)
        else:
            assert mark.stream == before.stream
            assert mark.next_offset == (before.next_offset if before.next_offset <= 5 else 0)
    # Once they are stored there is nothing more to store.
    again = Kept(topic=kept.topic, store=kept.store, marks=after, offsets=kept.offsets)
    assert renewed(again, topic, changed={}, from_start=False) == {}


@given(topics, st.sampled_from(["one", "two"]), missings)
def test_a_reader_without_marks_goes_on(
    topic: TopicLineage, store: str, missing: frozenset[tuple[str, str]]
) -> None:
    assert judge(Kept(), topic=topic, found={}, store=store, missing=missing) is Verdict.GO_ON


@pytest.mark.parametrize("verdict", [Verdict.OTHER_STORE, Verdict.OLDER_STORE])
def test_a_refusal_names_the_readers_the_topic_and_the_commands(verdict: Verdict) -> None:
    sentence = refusal(verdict, ["stock", "handlers:mail"], store="8b1f0c77-0", topic="shop.events")
    assert sentence.startswith("handlers:mail, stock of shop.events have read events ")
    assert "8b1f0c77" in sentence
    assert "`headrace events republish --replace`" in sentence
    assert "`headrace projection rebuild NAME --from store`" in sentence


def test_a_refusal_without_readers_names_the_topic() -> None:
    sentence = refusal(Verdict.OLDER_STORE, [], store="8b1f0c77-0", topic="shop.events")
    assert sentence.startswith("shop.events holds events that are not in this event store (8b1f0c7")


@given(
    st.dictionaries(st.integers(0, 2), st.tuples(*[st.integers(0, 9)] * 3).map(sorted), max_size=3),
    st.dictionaries(st.integers(0, 3), st.integers(0, 9)),
)
def test_a_reader_may_begin_where_the_topic_holds_all_that_it_ever_had_from_there_on(
    queues: dict[int, list[int]], begins: dict[int, int]
) -> None:
    topic = TopicLineage(
        identity="one",
        ranges={n: (first, end) for n, (_, first, end) in queues.items()},
        starts={n: start for n, (start, _, _) in queues.items()},
    )
    lost = [
        n
        for n, begin in begins.items()
        if n in queues and any(queues[n][0] <= offset < queues[n][1] for offset in range(begin, 9))
    ]
    sentence = why_trimmed("stock", begins, topic)
    assert (sentence is not None) == bool(lost)
    if sentence is not None:
        assert f"of queue {min(lost)}, which begins at" in sentence
        assert "--from-export" in sentence
        assert "headrace group reset" in sentence


def test_a_topic_that_was_made_again_under_its_name_has_lost_nothing_until_it_is_trimmed() -> None:
    remade = TopicLineage(identity="two", ranges={0: (17, 20)}, starts={0: 17})
    assert why_trimmed("stock", {0: 0}, remade) is None
    trimmed = TopicLineage(identity="two", ranges={0: (18, 20)}, starts={0: 17})
    assert "begins at 18" in str(why_trimmed("stock", {0: 0}, trimmed))
    assert why_trimmed("stock", {0: 18}, trimmed) is None
