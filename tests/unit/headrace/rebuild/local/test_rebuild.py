"""A rebuild in this process, from a real broker, on both databases."""

from itertools import accumulate
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import EventContext, Projection
from headrace.errors import (
    ProjectionError,
    ProjectionNotFound,
    RebuildRunning,
    SerializationError,
)
from headrace.events.seals import Seal
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.contents import store_offsets
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild import shadow as building_module
from headrace.rebuild.decode import Decoder, Undecodable
from headrace.rebuild.local import rebuild as replay_module
from headrace.rebuild.local import rows_in_memory as gathering_module
from headrace.rebuild.local.part import Part
from headrace.rebuild.local.rebuild import rebuild, rebuild_together
from headrace.stores.database.identity import new_identity


@pytest.fixture
def replay(event_broker: Any, ledger: Any, database_url: str) -> Any:
    async def run(name: str = "accounts", **choices: Any) -> Any:
        return await rebuild(
            ledger.path,
            name,
            broker=event_broker.address,
            read_models_url=database_url,
            **{"live_wait_ms": 0, "messages_max": 3, **choices},
        )

    return run


class Tally(BaseModel):
    aggregate_id: str
    events: int


NAMES = ["accounts", "partners", "tallies"]


class Killed(BaseException):
    """Ends a rebuild without a chance to tidy up."""


@pytest.fixture
def together(event_broker: Any, ledger: Any, database_url: str) -> Any:
    """Rebuilds three projections in one pass, the third with a row per aggregate."""
    tallies = Projection("tallies", row=Tally, key="aggregate_id")

    def tally(row: Tally | None, context: EventContext) -> Tally:
        return Tally(aggregate_id=context.aggregate_id, events=(row.events if row else 0) + 1)

    @tallies.fold
    def booked(row: Tally | None, event: ledger.Booked, context: EventContext) -> Tally:
        return tally(row, context)

    @tallies.fold
    def noted(row: Tally | None, event: ledger.Noted, context: EventContext) -> Tally:
        return tally(row, context)

    ledger.app.add(tallies)

    async def run(*names: str, **choices: Any) -> Any:
        return await rebuild_together(
            ledger.path,
            names or NAMES,
            broker=event_broker.address,
            read_models_url=database_url,
            **{"live_wait_ms": 0, "messages_max": 3, "verify": False, **choices},
        )

    return run


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets of what was decoded, as it comes."""
    found: list[int] = []
    decode = Decoder.decode

    def decoding(self: Any, queue: Any, portion: Any, start: int) -> Any:
        found.extend(offset for offset in portion.offsets if offset >= start)
        return decode(self, queue, portion, start)

    monkeypatch.setattr(Decoder, "decode", decoding)
    return found


@pytest.fixture
async def killed(history: Any, together: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The three killed in their fifth transaction: accounts stand at 6, the others at 3."""
    calls = 0

    def dying(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        store_offsets(*arguments)
        if calls == 5:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(gathering_module, "store_offsets", dying)
        with pytest.raises(Killed):
            await together()
    monkeypatch.setattr(building_module, "is_gone", lambda owner: True)


async def rows(models: ReadModels, projection: Any, generation: int | None = None) -> Any:
    reader = models.reader(projection, generation=generation)
    return {getattr(row, projection.key): row async for row in reader.rows()}


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_the_rebuilt_rows_are_the_live_ones_and_are_switched_to(
    name: str, replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    projection = ledger.app.projection(name)
    await read_models.ensure(projection)
    await go_live(read_models, projection)
    before = await rows(read_models, projection)
    report = await replay(name)
    assert (report.switched, report.mismatches, report.reason) == (True, 0, "")
    assert report.compared == len(before) == report.rows
    assert (report.events, report.duplicates, report.gaps, report.filled) == (31, 6, 0, 0)
    assert sum(report.end_offsets.values()) == len(history)
    assert await rows(read_models, projection) == before
    assert await read_models.generation(name) == report.generation


async def test_a_wrong_live_row_is_found_and_nothing_is_switched(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    await go_live(read_models, ledger.accounts)
    table = read_models.table_for(ledger.accounts, 1)
    async with read_models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "b").values(balance=1))
    report = await replay()
    assert (report.switched, report.mismatches) == (False, 1)
    assert [key for key, _, _ in report.differences] == ["b"]
    assert await read_models.generation("accounts") == 1


async def test_a_rebuild_that_was_killed_goes_on_where_it_stood(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await go_live(read_models, ledger.accounts)

    calls = 0

    def dying(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        store_offsets(*arguments)
        if calls == 5:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(gathering_module, "store_offsets", dying)
        with pytest.raises(Killed):
            await replay()
    monkeypatch.setattr(building_module, "is_gone", lambda owner: True)
    report = await replay()
    assert sum(report.start_offsets.values()) == 12
    assert (report.switched, report.mismatches) == (True, 0)
    assert sum(report.end_offsets.values()) == len(history)


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_from_offsets_only_what_came_since_is_folded_onto_the_live_rows(
    name: str, replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any,
    event_broker: Any, decoded: list[int],
) -> None:  # fmt: skip
    projection = ledger.app.projection(name)
    await read_models.ensure(projection)
    await go_live(read_models, projection)
    late = [ledger.stream("a", 7, ledger.Ended()), *history[:3]]
    late += [ledger.stream("f", 1, ledger.Booked(partner="p1", amount=1))]
    await event_broker.publish(*late)
    said: list[str] = []
    report = await replay(
        name, start="offsets", verify=False, report=lambda phase, _: said.append(phase)
    )
    phases = [phase for phase in said if not phase.endswith(" folded")]
    assert phases == ["begin", "base", "capture", "fold", "switch"]
    assert (report.start, report.switched) == ("offsets", True)
    assert (report.events, report.duplicates) == (2, 3)
    assert sum(report.start_offsets.values()) == len(history)
    assert len(decoded) == len(late)
    whole = await replay(name)
    assert (whole.switched, whole.mismatches) == (True, 0)


async def test_what_is_built_on_live_rows_is_never_gone_on_with(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    await go_live(read_models, ledger.accounts)
    table = read_models.table_for(ledger.accounts, 1)
    async with read_models.begin() as connection:
        await connection.execute(table.update().where(table.c.account_id == "b").values(balance=1))

    async def dying(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Part, "stand", dying)
        with pytest.raises(Killed):
            await replay(start="offsets")
    monkeypatch.setattr(building_module, "is_gone", lambda owner: True)
    report = await replay()
    assert (report.start, sum(report.start_offsets.values())) == ("zero", 0)
    assert [key for key, _, _ in report.differences] == ["b"]


async def test_rows_that_stand_behind_the_topics_end_are_not_built_upon(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    await go_live(read_models, ledger.accounts)
    target = read_models.target(ledger.accounts, 1)
    ahead = {(ledger.topic_name, 0): 999}
    await read_models.transact(lambda connection: store_offsets(connection, target, ahead))
    with pytest.raises(
        ProjectionError, match=r"before 999, where the live rows stand.*--from store"
    ):
        await replay(start="offsets")
    assert (await read_models.state("accounts")).rebuild_generation is None


async def test_a_fold_that_fails_leaves_the_live_rows_and_no_shadow(
    replay: Any, history: Any, event_broker: Any, read_models: ReadModels, ledger: Any
) -> None:
    await event_broker.publish(ledger.stream("z", 1, ledger.Noted(text="fail")))
    with pytest.raises(ProjectionError, match="cannot fold"):
        await replay()
    state = await read_models.state("accounts")
    assert (state.generation, state.rebuild_generation) == (1, None)


async def test_two_rebuilds_at_once_are_refused(
    replay: Any, event_broker: Any, read_models: ReadModels
) -> None:
    with pytest.raises(RebuildRunning):
        await replay()


async def test_each_phase_is_announced_and_each_queue_when_it_is_folded(
    replay: Any, history: Any, read_models: ReadModels
) -> None:
    said: list[tuple[str, int]] = []
    report = await replay(verify=False, report=lambda name, ahead: said.append((name, ahead)))
    assert said[:3] == [("begin", 0), ("capture", 0), ("fold", len(history))]
    assert said[-1] == ("switch", 0)
    queues, left = zip(*said[3:-1], strict=True)
    assert list(queues) == [f"{queue} folded" for queue in report.end_offsets]
    taken = accumulate(report.end_offsets.values())
    assert list(left) == [len(history) - so_far for so_far in taken]


async def test_one_pass_gives_the_rows_of_a_rebuild_of_each(
    replay: Any, together: Any, history: Any, read_models: ReadModels, ledger: Any,
    decoded: list[int], go_live: Any,
) -> None:  # fmt: skip
    projections = [ledger.app.projection(name) for name in NAMES]
    apart = {}
    for projection in projections:
        report = await replay(projection.name, verify=False, switch=False)
        apart[projection.name] = (
            report.events, await rows(read_models, projection, report.generation)
        )  # fmt: skip
        await go_live(read_models, projection)
    decoded.clear()
    outcomes = await together(verify=True)
    assert len(decoded) == len(history)
    assert list(outcomes) == NAMES
    for projection in projections:
        report = outcomes[projection.name]
        assert (report.switched, report.mismatches) == (True, 0)
        assert report.compared == report.rows > 0
        assert (report.events, await rows(read_models, projection)) == apart[projection.name]
        assert await read_models.generation(projection.name) == report.generation


async def test_one_pass_that_was_killed_goes_on_where_each_stood(
    killed: None, together: Any, replay: Any, history: Any, read_models: ReadModels, ledger: Any,
    decoded: list[int],
) -> None:  # fmt: skip
    outcomes = await together()
    assert [sum(report.start_offsets.values()) for report in outcomes.values()] == [6, 3, 3]
    assert len(decoded) == len(history) - 3
    for name, report in outcomes.items():
        projection = ledger.app.projection(name)
        found = await rows(read_models, projection)
        alone = await replay(name, verify=False, switch=False)
        assert report.switched
        assert found == await rows(read_models, projection, alone.generation)


async def test_a_message_that_does_not_decode_fails_those_that_have_it_before_them(
    killed: None, together: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = Decoder.decode

    def failing(self: Any, queue: Any, portion: Any, start: int) -> Any:
        if queue[1] == 0 and start <= 3 in portion.offsets:
            raise Undecodable(queue, 3, SerializationError("no"))
        return decode(self, queue, portion, start)

    monkeypatch.setattr(Decoder, "decode", failing)
    accounts, *others = (await together()).values()
    assert accounts.switched
    for other in others:
        with pytest.raises(ProjectionError, match="offset 3 does not decode: no"):
            raise other


async def test_a_failed_rebuild_among_three_costs_the_others_nothing(
    together: Any, history: Any, event_broker: Any, read_models: ReadModels, ledger: Any
) -> None:
    await event_broker.publish(ledger.stream("z", 1, ledger.Noted(text="fail")))
    outcomes = await together()
    with pytest.raises(ProjectionError, match="accounts cannot fold Noted"):
        raise outcomes["accounts"]
    state = await read_models.state("accounts")
    assert (state.generation, state.rebuild_generation) == (1, None)
    assert outcomes["partners"].switched
    tallies = await rows(read_models, ledger.app.projection("tallies"))
    assert {key: row.events for key, row in tallies.items()} == {
        **dict.fromkeys("abcde", 6), "z": 1,
    }  # fmt: skip


async def test_a_projection_under_rebuild_is_refused_and_the_others_are_built(
    together: Any, event_broker: Any, read_models: ReadModels
) -> None:
    outcomes = await together()
    assert isinstance(outcomes["accounts"], RebuildRunning)
    assert [outcomes[name].switched for name in NAMES[1:]] == [True, True]


async def test_a_name_that_is_none_begins_nothing(together: Any, read_models: ReadModels) -> None:
    with pytest.raises(ProjectionNotFound):
        await together("partners", "nobody")
    with pytest.raises(ProjectionNotFound):
        await read_models.state("partners")


async def test_a_broker_that_is_away_fails_each(
    together: Any, history: Any, event_broker: Any, read_models: ReadModels
) -> None:
    await event_broker.broker.aclose()
    outcomes = await together()
    assert {isinstance(each, ProjectionError) for each in outcomes.values()} == {True}
    assert (await read_models.state("accounts")).rebuild_generation is None


async def test_together_they_hold_in_memory_what_one_may_hold(
    together: Any, history: Any, read_models: ReadModels, ledger: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    most = 0
    add = gathering_module.Gathering.add

    async def adding(self: Any, *arguments: Any) -> Any:
        nonlocal most
        assert self._kept_max == 2
        taken = await add(self, *arguments)
        most = max(most, len(self._memory))
        return taken

    monkeypatch.setattr(replay_module, "KEPT_MAX", 6)
    monkeypatch.setattr(replay_module, "_PIECE_MAX", 1)
    monkeypatch.setattr(gathering_module.Gathering, "add", adding)
    outcomes = await together(messages_max=1)
    assert most <= 2
    assert [report.rows for report in outcomes.values()] == [4, 2, 5]


async def test_each_phase_of_each_projection_is_announced(
    together: Any, history: Any, read_models: ReadModels
) -> None:
    said: list[tuple[str, str, int]] = []
    await together("accounts", "partners", report=lambda *told: said.append(told))
    assert [each for each in said if not each[1].endswith(" folded")] == [
        (name, phase, len(history) if phase == "fold" else 0)
        for phase in ("begin", "capture", "fold", "switch")
        for name in ("accounts", "partners")
    ]


async def test_forged_events_are_in_no_rebuilt_row(
    replay: Any, believing: Any, read_models: ReadModels, ledger: Any
) -> None:
    one, two, true = (believing.stream(*each) for each in (("a", 1, 5), ("a", 2, 6), ("b", 1, 7)))
    seal = await believing.store(one, two, true)
    await believing.publish(one, seal=seal)
    forged = [believing.stream("a", 2, 1_000_000), believing.stream("nobody's", 1, 1_000_000)]
    await believing.publish(*forged, seal=None)
    await believing.publish(believing.stream("b", 1, 1_000_000), seal=Seal(new_identity()))
    await believing.publish(two, true, seal=seal)
    report = await replay(event_store_url=believing.url, verify=False, take_over=True)
    assert report.switched
    assert (report.foreign, report.events, report.rows) == (3, 3, 2)
    rows = [row async for row in read_models.reader(ledger.accounts).rows()]
    expected = fold_streams(ledger.accounts, {}, [one, two, true])
    assert {row.account_id: row for row in rows} == expected


async def test_a_topic_from_before_there_were_seals_is_rebuilt(
    replay: Any, believing: Any, read_models: ReadModels
) -> None:
    streams = [believing.stream(key, version, 3) for key in "abc" for version in range(1, 6)]
    await believing.store(*streams)
    await believing.publish(*streams, seal=None)
    report = await replay(event_store_url=believing.url, verify=False, take_over=True)
    assert (report.foreign, report.events, report.rows) == (0, 15, 3)


async def test_without_an_event_store_the_topic_is_believed(
    replay: Any, believing: Any, read_models: ReadModels
) -> None:
    await believing.publish(believing.stream("a", 1, 5), seal=None)
    report = await replay(verify=False, take_over=True)
    assert (report.foreign, report.rows) == (0, 1)


async def test_differences_are_told_by_column_and_can_be_accepted(
    replay: Any, history: Any, read_models: ReadModels, ledger: Any, go_live: Any
) -> None:
    await go_live(read_models, ledger.accounts)
    table = read_models.table_for(ledger.accounts, 1)
    async with read_models.begin() as connection:
        await connection.execute(table.update().values(balance=1))
        await connection.execute(table.delete().where(table.c.account_id == "b"))
    report = await replay()
    assert (report.switched, report.mismatches) == (False, 4)
    assert report.columns == {"balance": 3, "no live row": 1}
    assert "headrace projection switch accounts" in report.reason
    accepted = await replay(accept=True)
    assert (accepted.switched, accepted.mismatches, accepted.columns) == (True, 4, report.columns)
    assert (await replay()).mismatches == 0


async def test_a_stream_that_does_not_decode_leaves_its_aggregate_out_and_no_other(
    replay: Any, believing: Any, read_models: ReadModels, ledger: Any
) -> None:
    """As an event with a number that is none, which an earlier version took."""
    streams = [believing.stream(key, version, 3) for key in "ab" for version in (1, 2, 3)]
    seal = await believing.store(*streams)
    await believing.publish(*streams, seal=seal, spoil=("a", 2))
    report = await replay(event_store_url=believing.url, verify=False, take_over=True)
    assert report.switched
    (sentence,) = report.left_out
    assert "does not decode" in sentence
    rows = [row async for row in read_models.reader(ledger.accounts).rows()]
    whole = [
        each for each in streams if (each.aggregate_id, each.version) not in {("a", 2), ("a", 3)}
    ]
    assert {row.account_id: row for row in rows} == fold_streams(ledger.accounts, {}, whole)
