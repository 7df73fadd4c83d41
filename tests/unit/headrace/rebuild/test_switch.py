"""From a finished shadow to the live generation, without Spark and without a broker."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import update

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.lineage.generation_epochs import GenerationEpochs
from headrace.lineage.marks import note_epochs, read_epochs
from headrace.projections.batch_transaction import Applied, apply_batch, decode_batch
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.contents import write_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.projections.tables.survey import Survey
from headrace.rebuild import left_out as left_out_module
from headrace.rebuild import switch as switch_module
from headrace.rebuild.switch import (
    Means,
    RebuildOutcome,
    Shadow,
    accepts,
    advance,
    bring_live,
    release,
)
from headrace.stores.database.tables import projections
from headrace.transports.base import Incoming, QueueId, TopicLineage

QUEUE = ("ledger.events", 0)


class History:
    """The messages of one queue, and where each generation has got to."""

    def __init__(self, ledger: Any, read_models: ReadModels) -> None:
        self._ledger = ledger
        self._read_models = read_models
        self.messages: list[Incoming] = []
        self.fed: list[tuple[int, int]] = []
        self.on_feed: Callable[[], Any] | None = None

    def add(self, *streams: EventStream) -> None:
        for one in streams:
            self.messages.append(
                Incoming(
                    queue=QUEUE,
                    offset=len(self.messages),
                    key=one.aggregate_id,
                    tag="",
                    headers={},
                    body=self._ledger.serializer.encode_stream(one),
                )
            )

    async def apply(self, generation: int, end: int) -> None:
        target = self._read_models.target(self._ledger.accounts, generation)
        stored = await self._read_models.offsets("accounts", generation)
        batch = decode_batch(
            self.messages[stored.get(QUEUE, 0) : end], stored, self._ledger.serializer
        )
        async with self._read_models.begin() as connection:
            done = await apply_batch(connection, target, batch, missing=self.find_nothing)
        assert isinstance(done, Applied)

    async def feed(self, queue: QueueId, start: int, end: int) -> AsyncIterator[Sequence[Incoming]]:
        assert queue == QUEUE
        self.fed.append((start, end))
        if self.on_feed is not None:
            await self.on_feed()
        for at in range(start, end, 2):
            yield self.messages[at : min(at + 2, end)]

    @staticmethod
    async def find_nothing(*_of: object) -> Sequence[EventStream]:
        return ()

    @property
    def means(self) -> Means:
        return Means(
            feed=self.feed,
            serializer=self._ledger.serializer,
            missing=self.find_nothing,
            live_wait_ms=0,
        )


@pytest.fixture
def history(ledger: Any, read_models: ReadModels) -> History:
    """Five bookings on two accounts."""
    made = History(ledger, read_models)
    made.add(
        *(
            ledger.stream(key, version, ledger.Booked(partner="p", amount=version))
            for version in (1, 2, 3)
            for key in ("a", "b")
        )
    )
    return made


@pytest.fixture
def shadow(ledger: Any) -> Shadow:
    return Shadow(projection=ledger.accounts, generation=2, owner="the test")


async def test_a_level_shadow_is_compared_and_switched(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    for generation in (1, 2):
        await history.apply(generation, 6)
    outcome = await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert (outcome.switched, outcome.compared, outcome.mismatches) == (True, 2, 0)
    assert (outcome.caught_up, outcome.reason) == (0, "")
    assert outcome.offsets == {QUEUE: 6}
    state = await read_models.state("accounts")
    assert (state.generation, state.previous_generation, state.rebuild_owner) == (2, 1, None)


async def test_a_queue_that_stands_where_it_began_has_not_been_read(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    other = ("ledger.events", 1)

    async def starts() -> dict[QueueId, int]:
        return {other: 9}

    for generation in (1, 2):
        await history.apply(generation, 6)
    async with read_models.begin() as connection:
        await write_offsets(connection, read_models.target(shadow.projection, 2), {other: 9})
    means = replace(history.means, starts=starts)
    outcome = await bring_live(read_models, shadow, means, verify=True, switch=True)
    assert (outcome.switched, outcome.compared, outcome.reason) == (True, 2, "")


async def test_a_shadow_that_is_behind_catches_up_first(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    await history.apply(1, 6)
    await history.apply(2, 1)
    outcome = await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert (outcome.switched, outcome.compared, outcome.caught_up) == (True, 2, 5)
    assert history.fed == [(1, 6)]


async def test_a_shadow_whose_messages_were_lost_reads_those_in_their_place_before_the_switch(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    async def ask(known: Any, *, patient: bool) -> TopicLineage:
        assert patient
        changed = {0: 4} if known.get(0) == 3 else {}
        return TopicLineage(identity="", ranges={}, epochs={0: 5}, changed=changed)

    for generation in (1, 2):
        await history.apply(generation, 6)
    reader = ("accounts", 2)
    await read_models.transact(partial(note_epochs, reader=reader, epochs={0: 3}))
    means = replace(history.means, epochs=GenerationEpochs(topic=QUEUE[0], ask=ask))
    outcome = await bring_live(read_models, shadow, means, verify=True, switch=True)
    assert history.fed == [(4, 6)]
    assert (outcome.switched, outcome.compared, outcome.offsets) == (True, 2, {QUEUE: 6})
    assert await read_models.transact(partial(read_epochs, reader=reader)) == {0: 5}


async def test_live_may_go_on_while_the_shadow_catches_up(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    await history.apply(1, 2)

    async def live_goes_on() -> None:
        history.on_feed = None
        await history.apply(1, 5)

    history.on_feed = live_goes_on
    outcome = await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert (outcome.switched, outcome.mismatches, outcome.caught_up) == (True, 0, 5)
    assert history.fed == [(0, 2), (2, 5)]


async def test_a_live_generation_that_is_always_ahead_ends_the_rebuild(
    read_models: ReadModels, history: History, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch_module, "_ROUNDS_MAX", 3)
    await history.apply(1, 1)

    async def live_goes_on() -> None:
        await history.apply(1, len(history.fed) + 1)

    history.on_feed = live_goes_on
    with pytest.raises(ProjectionError, match="ahead again after each of 3 rounds"):
        await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert (await read_models.state("accounts")).generation == 1


def spoil(history: History, *offsets: int) -> None:
    """Makes messages of events that lack a field."""
    for at in offsets:
        one = history.messages[at]
        history.messages[at] = one._replace(body=one.body.replace(b'"amount"', b'"lost"'))


async def test_catching_up_leaves_an_aggregate_out_from_a_stream_that_does_not_decode(
    read_models: ReadModels, ledger: Any, history: History, shadow: Shadow
) -> None:
    spoil(history, 2)  # a's second of three
    means = history.means
    first = await advance(read_models, shadow, means, {QUEUE: 3})
    second = await advance(read_models, shadow, means, {QUEUE: 6})
    assert (first.messages, second.messages, first.events + second.events) == (3, 3, 4)
    assert await read_models.offsets("accounts", 2) == {QUEUE: 6}
    (sentence,) = means.left_out.sentences
    assert "offset 2 (aggregate a) does not decode" in sentence
    reader = read_models.reader(ledger.accounts, generation=2)
    whole = [history.messages[at] for at in (0, 1, 3, 5)]
    streams = [ledger.serializer.decode_stream(each.body) for each in whole]
    rows = {row.account_id: row async for row in reader.rows()}
    assert rows == fold_streams(ledger.accounts, {}, streams)


async def test_what_folding_left_out_stays_left_out_while_catching_up(
    read_models: ReadModels, ledger: Any, history: History, shadow: Shadow
) -> None:
    """Its next version would lack one before it, which nobody has."""
    means = history.means
    assert means.left_out.note("a", QUEUE, 0, "no reason")
    await advance(read_models, shadow, means, {QUEUE: 6})
    reader = read_models.reader(ledger.accounts, generation=2)
    assert [row.account_id async for row in reader.rows()] == ["b"]


async def test_too_many_that_do_not_decode_are_no_accident(
    read_models: ReadModels, history: History, shadow: Shadow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(left_out_module, "LEFT_OUT_MAX", 1)
    spoil(history, 2, 3)
    with pytest.raises(ProjectionError, match=r"offset 3 \(aggregate b\) does not decode"):
        await advance(read_models, shadow, history.means, {QUEUE: 6})


@pytest.mark.parametrize(("mended", "switched"), [("a", True), ("b", False), ("", False)])
async def test_only_rows_that_were_mended_may_differ(
    read_models: ReadModels, ledger: Any, history: History, shadow: Shadow, mended: str,
    switched: bool,
) -> None:  # fmt: skip
    for generation in (1, 2):
        await history.apply(generation, 6)
    table = read_models.table_for(ledger.accounts, 1)
    async with read_models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "a").values(balance=1))
    outcome = await bring_live(
        read_models, shadow, history.means, verify=True, switch=True, mended=frozenset(mended)
    )
    assert (outcome.switched, outcome.mended) == (switched, int(switched))
    assert (outcome.compared, outcome.mismatches) == (2, int(not switched))


async def test_a_difference_is_told_and_not_switched(
    ledger: Any, read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    for generation in (1, 2):
        await history.apply(generation, 6)
    table = read_models.table_for(ledger.accounts, 1)
    async with read_models.begin() as connection:
        await connection.execute(table.delete().where(table.c.account_id == "b"))
    outcome = await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert (outcome.switched, outcome.compared, outcome.mismatches) == (False, 2, 1)
    [(key, live, rebuilt)] = outcome.differences
    assert (key, live, rebuilt["balance"]) == ("b", None, (1 * 3 + 2) * 3 + 3)
    assert "1 of 2 rows differ" in outcome.reason
    assert (await read_models.state("accounts")).generation == 1


async def test_a_live_generation_that_stays_behind_is_not_compared(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    await history.apply(1, 2)
    await history.apply(2, 6)
    outcome = await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert (outcome.switched, outcome.compared) == (False, None)
    assert "the live generation is behind the rebuilt one" in outcome.reason
    assert outcome.offsets == {QUEUE: 6}


async def test_rows_of_another_version_differ_on_purpose_and_need_no_service_that_folds_them(
    read_models: ReadModels, history: History, shadow: Shadow, ledger: Any
) -> None:
    """As of a definition that had been version 2."""
    await history.apply(1, 2)
    await history.apply(2, 6)
    async with read_models.begin() as connection:
        mark = f"2:{ledger.accounts.fingerprint}"[:64]
        await connection.execute(update(projections).values(fingerprint=mark))
    means, wishes = history.means, {"verify": True, "switch": True}
    exact = await bring_live(read_models, shadow, means, **wishes, accept=5)
    assert (exact.switched, exact.compared) == (False, None)
    outcome = await bring_live(read_models, shadow, means, **wishes)
    assert (outcome.switched, outcome.compared) == (True, None)
    assert "no service of version 2 brings the live rows up to date" in outcome.reason


async def test_without_verifying_a_shadow_that_is_ahead_is_switched(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    await history.apply(1, 2)
    await history.apply(2, 6)
    outcome = await bring_live(read_models, shadow, history.means, verify=False, switch=True)
    assert (outcome.switched, outcome.compared, outcome.reason) == (True, None, "")


async def test_a_shadow_that_was_taken_away_is_neither_filled_nor_switched(
    ledger: Any, read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    await read_models.abandon_shadow("accounts", 2, "the test")
    with pytest.raises(ProjectionError, match="no longer the shadow that the test builds"):
        await bring_live(read_models, shadow, history.means, verify=False, switch=True)
    await history.apply(1, 2)
    with pytest.raises(ProjectionError, match="no longer the shadow that the test builds"):
        await bring_live(read_models, shadow, history.means, verify=True, switch=True)


async def test_a_released_shadow_keeps_its_rows_and_lets_the_next_one_begin(
    ledger: Any, read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    await history.apply(2, 6)
    async with read_models.begin() as connection:
        await release(connection, shadow)
    kept = read_models.reader(ledger.accounts, generation=2)
    assert await kept.count() == 2
    state = await read_models.state("accounts")
    assert (state.rebuild_generation, state.rebuild_owner) == (None, None)
    assert await read_models.begin_shadow(ledger.accounts, "the next") == 3


async def test_only_the_owner_can_release(read_models: ReadModels, ledger: Any) -> None:
    other = Shadow(projection=ledger.accounts, generation=2, owner="somebody")
    async with read_models.begin() as connection:
        await release(connection, other)
    assert (await read_models.state("accounts")).rebuild_owner == "the test"


@pytest.mark.parametrize(
    ("found", "accepted"),
    [
        ({"compared": 9}, {False, 2, True}),
        ({"compared": 9, "mismatches": 2}, {2, True}),
        ({"compared": 9, "mismatches": 3}, {True}),
        ({"compared": 9, "ahead": 1}, {True}),
        ({}, {False, True}),
    ],
)
def test_a_number_of_differences_is_accepted_where_it_is_known(
    found: Any, accepted: set[int]
) -> None:
    outcome = RebuildOutcome(offsets={}, **found)
    assert {each for each in (False, 2, True) if accepts(outcome, each)} == accepted


@pytest.mark.parametrize("by", ["event", "hand"])
async def test_a_difference_that_comes_between_the_comparisons_is_found(
    read_models: ReadModels, history: History, shadow: Shadow, ledger: Any, by: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for generation in (1, 2):
        await history.apply(generation, 4)
    table = read_models.table_for(ledger.accounts, 1)
    begin = Survey.begin

    async def then_change(survey: Survey[Any]) -> None:
        await begin(survey)
        if by == "event":
            # Live folds both, and then one of its rows is another one.
            await history.apply(1, 6)
        async with read_models.begin() as connection:
            await connection.execute(update(table).where(table.c[0] == "b").values(_wrong(table)))

    monkeypatch.setattr(Survey, "begin", then_change)
    outcome = await bring_live(read_models, shadow, history.means, verify=True, switch=True)
    assert outcome.caught_up == (2 if by == "event" else 0)
    if by == "hand" and read_models.engine.dialect.name == "sqlite":
        # As documented: SQLite does not tell which rows a person has changed meanwhile.
        assert (outcome.switched, outcome.mismatches) == (True, 0)
        return
    assert (outcome.switched, outcome.compared, outcome.mismatches) == (False, 2, 1)
    assert [key for key, _, _ in outcome.differences] == ["b"]


def _wrong(table: Any) -> dict[str, int]:
    return {next(c.name for c in table.columns if c.type.python_type is int): 777}


async def test_catching_up_goes_on_behind_a_service_that_was_quicker(
    read_models: ReadModels, history: History, shadow: Shadow
) -> None:
    async def service_is_quicker() -> None:
        history.on_feed = None
        await history.apply(2, 3)

    history.on_feed = service_is_quicker
    advanced = await advance(read_models, shadow, history.means, {QUEUE: 6})
    assert (advanced.messages, history.fed) == (3, [(0, 6), (3, 6)])
    assert await read_models.offsets("accounts", 2) == {QUEUE: 6}
