from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome
from headrace.stores.chain import decide, expected_heads
from headrace.testing.conformance.streams import rejected, stream

APPENDED = AppendOutcome.APPENDED
DUPLICATE = AppendOutcome.DUPLICATE_COMMAND
CONFLICT = AppendOutcome.VERSION_CONFLICT

ids = st.sampled_from(["a", "b"])
commands = st.sampled_from(["c1", "c2", "c3", "c4", "c5"])
streams = st.builds(stream, ids, st.integers(1, 4), commands) | st.builds(rejected, ids, commands)
batches = st.lists(streams, max_size=8)
heads_of_aggregates = st.dictionaries(ids, st.integers(0, 3))
stored_commands = st.sets(st.tuples(ids, commands), max_size=3)


@given(batches, heads_of_aggregates, stored_commands)
def test_the_appended_streams_could_be_stored_one_by_one(
    batch: list[EventStream], heads: dict[str, int], stored: set[tuple[str, str]]
) -> None:
    outcomes = decide(batch, heads, stored)
    versions, known = dict(heads), set(stored)
    for each, outcome in zip(batch, outcomes, strict=True):
        if outcome is APPENDED:
            assert (each.aggregate_id, each.command_id) not in known
            known.add((each.aggregate_id, each.command_id))
            if each.version is not None:
                assert each.version == versions.get(each.aggregate_id, 0) + 1
                versions[each.aggregate_id] = each.version


@given(batches, heads_of_aggregates, stored_commands)
def test_nothing_of_an_aggregate_is_appended_after_a_refusal(
    batch: list[EventStream], heads: dict[str, int], stored: set[tuple[str, str]]
) -> None:
    outcomes = decide(batch, heads, stored)
    for aggregate_id in ("a", "b"):
        own = [
            outcome
            for each, outcome in zip(batch, outcomes, strict=True)
            if each.aggregate_id == aggregate_id
        ]
        refused = [index for index, outcome in enumerate(own) if outcome is not APPENDED]
        if refused:
            assert own[refused[0] + 1 :] == [CONFLICT] * (len(own) - refused[0] - 1)


@given(batches, heads_of_aggregates, stored_commands)
def test_a_refusal_has_its_reason(
    batch: list[EventStream], heads: dict[str, int], stored: set[tuple[str, str]]
) -> None:
    outcomes = decide(batch, heads, stored)
    versions, known, refused = dict(heads), set(stored), set()
    for each, outcome in zip(batch, outcomes, strict=True):
        command = (each.aggregate_id, each.command_id)
        if outcome is DUPLICATE:
            assert command in known
        if outcome is CONFLICT and each.aggregate_id not in refused:
            assert each.version not in {None, versions.get(each.aggregate_id, 0) + 1}
            assert command not in known
        if outcome is not APPENDED:
            refused.add(each.aggregate_id)
            continue
        known.add(command)
        versions[each.aggregate_id] = each.version or versions.get(each.aggregate_id, 0)


@given(batches, heads_of_aggregates)
def test_a_batch_is_appended_whole_exactly_onto_its_expected_heads(
    batch: list[EventStream], heads: dict[str, int]
) -> None:
    outcomes = decide(batch, heads, set())
    expected = expected_heads(batch)
    fits = expected is not None and all(
        heads.get(aggregate_id, 0) == version for aggregate_id, version in expected.items()
    )
    assert fits == all(outcome is APPENDED for outcome in outcomes)


def test_an_aggregate_with_rejections_only_expects_no_head() -> None:
    assert expected_heads([rejected("a", "c1"), stream("b", 4, "c1")]) == {"b": 3}


def test_a_batch_that_contradicts_itself_expects_nothing() -> None:
    assert expected_heads([stream("a", 1, "c1"), stream("a", 2, "c1")]) is None
    assert expected_heads([stream("a", 1, "c1"), stream("a", 1, "c2")]) is None
    assert expected_heads([stream("a", 1, "c1"), stream("a", 3, "c2")]) is None
