"""
What every event store must do, sentence by sentence of the `EventStore` port.

    class TestMyEventStore(EventStoreConformance):
        @pytest.fixture
        async def store(self): ...    # an empty store that uses `conformance_serializer()`

        @pytest.fixture
        async def twin(self, store): ...    # another store on the same database, or `store` itself

Subclass it in the tests of your adapter.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta, timezone
from random import Random

from headrace.domain.stream import EventStream
from headrace.stores.base import AppendOutcome, EventStore
from headrace.testing.conformance.stored import SnapshotConformance, StoredConformance
from headrace.testing.conformance.streams import MOMENT, Noted, Recounted, Told, rejected, stream

__all__ = ["EventStoreConformance"]

APPENDED = AppendOutcome.APPENDED
DUPLICATE = AppendOutcome.DUPLICATE_COMMAND
CONFLICT = AppendOutcome.VERSION_CONFLICT


async def _versions(store: EventStore, aggregate_id: str) -> list[int | None]:
    return [found.version for found in await store.read_stream(aggregate_id)]


async def _places(store: EventStore) -> list[tuple[str, str]]:
    found = await store.read_all()
    return [(each.stream.aggregate_id, each.stream.command_id) for each in found]


class EventStoreConformance(SnapshotConformance, StoredConformance):
    """The suite; subclass it with the fixtures `store` and `twin`."""

    # Append: what is stored, and what it returns.

    async def test_an_empty_append_answers_nothing(self, store: EventStore) -> None:
        """An append of no streams answers with no outcomes."""
        assert await store.append([]) == []

    async def test_what_was_appended_is_read_back_whole(self, store: EventStore) -> None:
        """Every field of a stream survives."""
        whole = EventStream(
            aggregate_type="Notebook",
            aggregate_id="a",
            version=1,
            command_id="c",
            correlation_id="first of the chain",
            recorded_at=MOMENT,
            events=(Noted(text="one"), Recounted(count=2)),
            result='{"pages":3}',
            items={"user": "u-1", "tenant": "t-1"},
        )
        assert await store.append([whole]) == [APPENDED]
        assert await store.read_stream("a") == [whole]
        assert await store.find_command("a", "c") == whole
        assert [found.stream for found in await store.read_all()] == [whole]

    async def test_a_rejection_is_read_back_whole(self, store: EventStore) -> None:
        """Every field of a rejection survives."""
        rejection = rejected("a", "c")
        assert await store.append([rejection]) == [APPENDED]
        assert await store.find_command("a", "c") == rejection
        assert [found.stream for found in await store.read_all()] == [rejection]

    async def test_messages_without_events_are_read_back_whole_and_take_no_version(
        self, store: EventStore
    ) -> None:
        """A stream of application messages is stored once per command and takes no version."""
        telling = replace(stream("a", 1, "c"), version=None, events=(), messages=(Told(text="x"),))
        assert await store.append([telling, stream("a", 1)]) == [APPENDED] * 2
        assert await store.append([telling]) == [DUPLICATE]
        assert await store.find_command("a", "c") == telling
        assert await store.read_stream("a") == [stream("a", 1)]
        assert [found.stream for found in await store.read_all()] == [telling, stream("a", 1)]

    async def test_what_changed_nothing_is_read_back_whole_and_takes_no_version(
        self, store: EventStore
    ) -> None:
        """That a command changed nothing is stored once per command and takes no version."""
        nothing = replace(
            stream("a", 1, "c"), version=None, events=(), result='"seen"', seen_version=1
        )
        assert await store.append([stream("a", 1), nothing, stream("a", 2)]) == [APPENDED] * 3
        assert await store.append([nothing]) == [DUPLICATE]
        assert await store.find_command("a", "c") == nothing
        assert await _versions(store, "a") == [1, 2]

    async def test_a_moment_in_another_zone_stays_the_same_moment(self, store: EventStore) -> None:
        """A stream recorded in another time zone is read back as the same moment."""
        there = MOMENT.astimezone(timezone(timedelta(hours=5, minutes=30)))
        original = stream("a", 1)
        await store.append(
            [
                EventStream(
                    aggregate_type=original.aggregate_type,
                    aggregate_id="a",
                    version=1,
                    command_id="c",
                    correlation_id="c",
                    recorded_at=there,
                    events=original.events,
                )
            ]
        )
        assert [found.recorded_at for found in await store.read_stream("a")] == [MOMENT]

    async def test_outcomes_are_in_the_order_given(self, store: EventStore) -> None:
        """The n-th outcome belongs to the n-th stream, whether or not the others are stored."""
        await store.append([stream("b", 1, "stored")])
        outcomes = await store.append(
            [stream("a", 1), stream("b", 2, "stored"), stream("c", 5), stream("d", 1)]
        )
        assert outcomes == [APPENDED, DUPLICATE, CONFLICT, APPENDED]

    async def test_a_command_of_an_aggregate_is_stored_once(self, store: EventStore) -> None:
        """The same command id on the same aggregate is a duplicate, also with other events."""
        await store.append([stream("a", 1, "c", text="first")])
        assert await store.append([stream("a", 2, "c", text="second")]) == [DUPLICATE]
        assert await store.read_stream("a") == [stream("a", 1, "c", text="first")]

    async def test_two_aggregates_may_have_the_same_command_id(self, store: EventStore) -> None:
        """A command id is unique within its aggregate only."""
        assert await store.append([stream("a", 1, "c"), stream("b", 1, "c")]) == [APPENDED] * 2

    async def test_a_version_that_is_taken_is_a_conflict(self, store: EventStore) -> None:
        """A version is stored once."""
        await store.append([stream("a", 1), stream("a", 2)])
        assert await store.append([stream("a", 2, "other")]) == [CONFLICT]
        assert await store.append([stream("a", 1, "other")]) == [CONFLICT]
        assert await _versions(store, "a") == [1, 2]

    async def test_a_version_that_would_leave_a_hole_is_a_conflict(self, store: EventStore) -> None:
        """Only the next version is stored, of a new aggregate and of an old one."""
        assert await store.append([stream("a", 2)]) == [CONFLICT]
        await store.append([stream("a", 1)])
        assert await store.append([stream("a", 3)]) == [CONFLICT]
        assert await _versions(store, "a") == [1]
        assert await store.find_command("a", "command-3") is None

    async def test_a_version_below_the_first_is_a_conflict(self, store: EventStore) -> None:
        """Versions begin with 1."""
        assert await store.append([stream("a", 0)]) == [CONFLICT]
        assert await store.append([stream("a", -1)]) == [CONFLICT]
        assert await store.read_all() == []

    async def test_where_both_constraints_are_broken_it_is_a_duplicate(
        self, store: EventStore
    ) -> None:
        """A repeated stream breaks both constraints and is a duplicate."""
        await store.append([stream("a", 1)])
        assert await store.append([stream("a", 1)]) == [DUPLICATE]

    async def test_a_stored_command_with_a_hole_is_a_duplicate(self, store: EventStore) -> None:
        """A duplicate command is found before a version conflict, even if the version leaves a hole."""
        await store.append([stream("a", 1, "c")])
        assert await store.append([stream("a", 7, "c")]) == [DUPLICATE]

    async def test_a_repeated_append_changes_nothing(self, store: EventStore) -> None:
        """An append may be repeated: stored streams are reported as duplicates."""
        batch = [stream("a", 1), stream("b", 1), rejected("c", "no")]
        await store.append(batch)
        before = await store.read_all()
        assert await store.append(batch) == [DUPLICATE] * 3
        assert await store.read_all() == before

    # Append: chains.

    async def test_a_chain_is_stored_in_one_append(self, store: EventStore) -> None:
        """Several versions of one aggregate may come together, mixed with others'."""
        batch = [stream("a", 1), stream("b", 1), stream("a", 2), stream("b", 2), stream("a", 3)]
        assert await store.append(batch) == [APPENDED] * 5
        assert await _versions(store, "a") == [1, 2, 3]
        assert [found.stream for found in await store.read_all()] == batch

    async def test_after_a_conflict_the_rest_of_the_chain_is_refused(
        self, store: EventStore
    ) -> None:
        """What was decided on top of a stream that is not stored is not stored either."""
        await store.append([stream("a", 1)])
        outcomes = await store.append(
            [stream("a", 1, "late"), stream("a", 2, "next"), rejected("a", "no"), stream("b", 1)]
        )
        assert outcomes == [CONFLICT, CONFLICT, CONFLICT, APPENDED]
        assert await _places(store) == [("a", "command-1"), ("b", "command-1")]

    async def test_after_a_duplicate_the_rest_of_the_chain_is_refused(
        self, store: EventStore
    ) -> None:
        """Also a stream that would fit by its version, because it follows another decision."""
        await store.append([stream("a", 1, "c")])
        outcomes = await store.append(
            [stream("a", 2, "c"), stream("a", 2, "fits"), stream("a", 3), stream("b", 1)]
        )
        assert outcomes == [DUPLICATE, CONFLICT, CONFLICT, APPENDED]
        assert await _versions(store, "a") == [1]

    async def test_after_a_hole_the_rest_of_the_chain_is_refused(self, store: EventStore) -> None:
        """A stream is not stored after one that left a hole, even if its version would fit."""
        assert await store.append([stream("a", 2), stream("a", 1)]) == [CONFLICT] * 2
        assert await store.read_all() == []

    async def test_a_chain_breaks_in_its_middle(self, store: EventStore) -> None:
        """What comes before the break is stored."""
        await store.append([stream("a", 1, "old")])
        outcomes = await store.append(
            [stream("a", 2), stream("a", 3, "old"), stream("a", 3), stream("b", 1)]
        )
        assert outcomes == [APPENDED, DUPLICATE, CONFLICT, APPENDED]
        assert await _versions(store, "a") == [1, 2]

    async def test_a_command_twice_in_one_append_is_a_duplicate(self, store: EventStore) -> None:
        """The streams of one append count as stored one after the other."""
        outcomes = await store.append([stream("a", 1, "c"), stream("a", 2, "c"), stream("b", 1)])
        assert outcomes == [APPENDED, DUPLICATE, APPENDED]
        assert await _versions(store, "a") == [1]

    async def test_a_version_twice_in_one_append_is_a_conflict(self, store: EventStore) -> None:
        """The second stream of a version finds the first."""
        outcomes = await store.append([stream("a", 1, "c"), stream("a", 1, "d"), stream("b", 1)])
        assert outcomes == [APPENDED, CONFLICT, APPENDED]

    async def test_any_mixture_is_answered_as_the_port_says(self, store: EventStore) -> None:
        """Many small batches of good and bad streams, judged one stream at a time."""
        random = Random(20_260_131)  # noqa: S311 - reproducible on purpose, guards nothing
        kept: list[EventStream] = []
        for _ in range(60):
            batch = [_any_stream(random, kept) for _ in range(random.randint(1, 8))]
            assert await store.append(batch) == _judge(batch, kept)
        assert [found.stream for found in await store.read_all()] == kept
        assert len(kept) > 20

    # Append: rejections.

    async def test_a_rejection_takes_no_version(self, store: EventStore) -> None:
        """Rejections may stand before, between and after versions."""
        outcomes = await store.append(
            [rejected("a", "r1"), stream("a", 1), rejected("a", "r2"), stream("a", 2)]
        )
        assert outcomes == [APPENDED] * 4
        assert await store.append([rejected("a", "r3"), stream("a", 3)]) == [APPENDED] * 2
        assert await _versions(store, "a") == [1, 2, 3]

    async def test_a_duplicate_of_a_rejected_command_is_a_duplicate(
        self, store: EventStore
    ) -> None:
        """A rejected command stays rejected, also if it would be accepted now."""
        await store.append([rejected("a", "c")])
        assert await store.append([stream("a", 1, "c")]) == [DUPLICATE]
        assert await store.append([rejected("a", "c")]) == [DUPLICATE]
        assert await store.read_stream("a") == []

    async def test_a_rejection_of_a_stored_command_is_a_duplicate(self, store: EventStore) -> None:
        """A command that was accepted stays accepted."""
        await store.append([stream("a", 1, "c")])
        assert await store.append([rejected("a", "c")]) == [DUPLICATE]
        assert await store.find_command("a", "c") == stream("a", 1, "c")

    # Append: sizes and texts.

    async def test_a_thousand_aggregates_in_one_append(self, store: EventStore) -> None:
        """A large group is stored whole, in its order."""
        batch = [stream(f"a-{number}", 1) for number in range(1_000)]
        assert await store.append(batch) == [APPENDED] * 1_000
        assert [found.stream for found in await store.read_all()] == batch

    async def test_one_conflict_among_a_thousand_harms_no_other(self, store: EventStore) -> None:
        """The other aggregates of a group are stored."""
        await store.append([stream("a-500", 1, "other")])
        batch = [stream(f"a-{number}", 1) for number in range(1_000)]
        outcomes = await store.append(batch)
        assert outcomes == [APPENDED] * 500 + [CONFLICT] + [APPENDED] * 499

    async def test_texts_of_any_script_survive(self, store: EventStore) -> None:
        """Ids and bodies may hold any script, quotes, line breaks and binds of SQL."""
        text = "Grüße, Ευρώπη, 日本語, 🏦\u200d, \"'\\\n\t:name $1 ?\u0000\u2028"
        odd_id = "Zoë's «Konto» 🏦 %_:id"
        await store.append([stream(odd_id, 1, "c 🧾", text=text)])
        assert await store.read_stream(odd_id) == [stream(odd_id, 1, "c 🧾", text=text)]
        assert await store.append([stream(odd_id, 1, "c 🧾")]) == [DUPLICATE]
        assert await store.append([stream(odd_id, 1, "d 🧾")]) == [CONFLICT]

    async def test_ids_that_look_alike_are_different(self, store: EventStore) -> None:
        """Ids are compared character by character: case, accents and blanks count."""
        ids = ["a", "A", "a ", " a", "ä", "a\u0308", "1", "01"]
        batch = [stream(aggregate_id, 1) for aggregate_id in ids]
        assert await store.append(batch) == [APPENDED] * len(ids)
        assert await store.read_stream("A") == [batch[1]]

    async def test_ids_of_255_characters(self, store: EventStore) -> None:
        """The longest ids work, also in four-byte characters."""
        longest = "🏦" * 255
        assert await store.append([stream(longest, 1, longest)]) == [APPENDED]
        assert await store.find_command(longest, longest) == stream(longest, 1, longest)
        assert await store.append([stream(longest, 2, longest)]) == [DUPLICATE]

    async def test_a_body_of_one_megabyte(self, store: EventStore) -> None:
        """A large event is stored and read back whole."""
        large = stream("a", 1, text="ä" * 500_000)
        assert await store.append([large]) == [APPENDED]
        assert await store.read_stream("a") == [large]

    # Reading one aggregate.

    async def test_an_unknown_aggregate_has_no_streams(self, store: EventStore) -> None:
        """Reading an aggregate that was never stored answers with an empty list."""
        await store.append([stream("a", 1)])
        assert await store.read_stream("b") == []

    async def test_a_part_of_an_aggregate_is_read_by_versions(self, store: EventStore) -> None:
        """After one version, up to and including another."""
        whole = [stream("a", version) for version in range(1, 12)]
        await store.append([rejected("a", "no"), *whole, stream("b", 1)])
        assert await store.read_stream("a") == whole
        assert await store.read_stream("a", after_version=4) == whole[4:]
        assert await store.read_stream("a", to_version=3) == whole[:3]
        assert await store.read_stream("a", after_version=2, to_version=10) == whole[2:10]
        assert await store.read_stream("a", after_version=11) == []
        assert await store.read_stream("a", to_version=0) == []
        assert await store.read_stream("a", after_version=5, to_version=5) == []

    async def test_an_unknown_command_is_none(self, store: EventStore) -> None:
        """A command is looked up on its own aggregate only."""
        await store.append([stream("a", 1, "c")])
        assert await store.find_command("b", "c") is None
        assert await store.find_command("a", "d") is None

    # Reading everything.

    async def test_an_empty_store_has_no_position(self, store: EventStore) -> None:
        """Without streams there is nothing to read and the last position is 0."""
        assert await store.read_all() == []
        assert await store.last_position() == 0

    async def test_positions_grow_from_1_in_the_order_of_appends(self, store: EventStore) -> None:
        """Every position is higher than the ones before; the last is the store's last."""
        await store.append([stream("b", 1), stream("a", 1)])
        await store.append([rejected("c", "no")])
        await store.append([stream("a", 2)])
        found = await store.read_all()
        positions = [each.position for each in found]
        assert positions[0] >= 1
        assert positions == sorted(set(positions))
        assert [each.stream.aggregate_id for each in found] == ["b", "a", "c", "a"]
        assert await store.last_position() == positions[-1]

    async def test_everything_is_read_in_pages(self, store: EventStore) -> None:
        """Reading on after the last position seen meets every stream once."""
        batch = [stream(f"a-{number}", 1) for number in range(25)]
        await store.append(batch)
        seen: list[EventStream] = []
        position = 0
        while page := await store.read_all(after_position=position, limit=10):
            assert len(page) <= 10
            seen += [each.stream for each in page]
            position = page[-1].position
        assert seen == batch

    async def test_reading_after_the_end_finds_what_comes_later(self, store: EventStore) -> None:
        """A reader at the end meets the next stream, and nothing before it again."""
        await store.append([stream("a", 1)])
        end = await store.last_position()
        assert await store.read_all(after_position=end) == []
        await store.append([stream("a", 1), stream("b", 1)])
        later = await store.read_all(after_position=end)
        assert [each.stream for each in later] == [stream("b", 1)]

    # Several at once.

    async def test_a_twin_reads_what_was_appended(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """What one store answered is there for another one at once."""
        await store.append([stream("a", 1)])
        assert await twin.read_stream("a") == [stream("a", 1)]
        assert await twin.append([stream("a", 1, "other")]) == [CONFLICT]
        assert await twin.append([stream("a", 2)]) == [APPENDED]
        assert await store.append([stream("a", 3)]) == [APPENDED]

    async def test_one_of_many_concurrent_appends_wins_a_version(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """Of commands that race for one version exactly one is stored; no append raises."""
        appends = [
            (store, twin)[number % 2].append([stream("a", 1, f"c-{number}")])
            for number in range(20)
        ]
        outcomes = [outcome for answer in await asyncio.gather(*appends) for outcome in answer]
        assert sorted(outcomes, key=lambda each: each.value) == [APPENDED] + [CONFLICT] * 19
        assert await _versions(store, "a") == [1]

    async def test_one_of_many_concurrent_duplicates_is_stored(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """The same batch sent many times at once is stored once; no append raises."""
        batch = [stream(f"a-{number}", 1, "c") for number in range(50)]
        answers = await asyncio.gather(
            *[(store, twin)[number % 2].append(batch) for number in range(10)]
        )
        for outcomes in zip(*answers, strict=True):
            assert (
                sorted(each.value for each in outcomes) == ["appended"] + ["duplicate command"] * 9
            )
        assert len(await store.read_all()) == 50

    async def test_concurrent_groups_that_overlap_lose_nothing(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """Groups in opposite orders neither block each other for ever nor tear an aggregate."""
        forth = [stream(f"a-{number}", 1, "forth") for number in range(100)]
        back = [stream(f"a-{number}", 1, "back") for number in reversed(range(100))]
        first, second = await asyncio.gather(store.append(forth), twin.append(back))
        for one, other in zip(first, reversed(second), strict=True):
            assert {one, other} == {APPENDED, CONFLICT}
        assert len(await store.read_all()) == 100

    async def test_a_reader_beside_writers_skips_nothing(
        self, store: EventStore, twin: EventStore
    ) -> None:
        """A reader that follows the positions while two stores write meets every stream once."""
        batches = [
            [stream(f"{name}-{number}", version, f"c-{version}") for version in (1, 2, 3)]
            for number in range(20)
            for name in ("a", "b")
        ]
        seen: list[EventStream] = []
        position = 0
        writers = asyncio.gather(
            _append_each(store, batches[0::2]), _append_each(twin, batches[1::2])
        )
        while True:
            done = writers.done()
            page = await store.read_all(after_position=position, limit=7)
            seen += [each.stream for each in page]
            position = page[-1].position if page else position
            if done and not page:
                break
            await asyncio.sleep(0)
        await writers
        assert sorted((each.aggregate_id, each.version) for each in seen) == sorted(
            (each.aggregate_id, each.version) for batch in batches for each in batch
        )
        for batch in batches:
            assert [each for each in seen if each.aggregate_id == batch[0].aggregate_id] == batch


def _any_stream(random: Random, kept: Sequence[EventStream]) -> EventStream:
    """Returns a stream that may fit, leave a hole, come late or repeat a command."""
    aggregate_id = random.choice("abcd")
    command_id = f"c-{random.randint(1, 60)}"
    if random.random() < 0.2:
        return rejected(aggregate_id, command_id)
    head = sum(1 for each in kept if each.aggregate_id == aggregate_id and each.version)
    return stream(aggregate_id, head + random.choice([0, 1, 1, 1, 1, 1, 2, 2, 3]), command_id)


def _judge(batch: Sequence[EventStream], kept: list[EventStream]) -> list[AppendOutcome]:
    """Follows the port's sentences as literally as possible, and adds stored streams to `kept`."""
    outcomes: list[AppendOutcome] = []
    for place, each in enumerate(batch):
        own = [one for one in kept if one.aggregate_id == each.aggregate_id]
        chain = [
            outcome
            for before, outcome in zip(batch[:place], outcomes, strict=True)
            if before.aggregate_id == each.aggregate_id
        ]
        if any(outcome is not APPENDED for outcome in chain):
            outcomes.append(CONFLICT)
        elif any(one.command_id == each.command_id for one in own):
            outcomes.append(DUPLICATE)
        elif each.version not in {None, 1 + len([one for one in own if one.version])}:
            outcomes.append(CONFLICT)
        else:
            outcomes.append(APPENDED)
            kept.append(each)
    return outcomes


async def _append_each(store: EventStore, batches: Sequence[Sequence[EventStream]]) -> None:
    for batch in batches:
        assert await store.append(batch) == [APPENDED] * len(batch)
