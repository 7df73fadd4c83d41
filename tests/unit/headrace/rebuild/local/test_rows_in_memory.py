"""Folding in memory: the rows are those of one fold, however it is cut, and stand with their offsets."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.projections.tables.read_models import ReadModels
from headrace.rebuild.decode import Told, tell
from headrace.rebuild.local.rows_in_memory import Gathering, WrittenKeys
from headrace.rebuild.switch import Shadow

Q0, Q1 = ("ledger.events", 0), ("ledger.events", 1)


@pytest.fixture
def gather(read_models: ReadModels, ledger: Any) -> Any:
    def make(
        name: str = "accounts", stored: Sequence[EventStream] = (), **choices: Any
    ) -> Gathering[Any]:
        async def find(aggregate_id: str, after: int, to: int) -> list[EventStream]:
            return [
                each
                for each in stored
                if each.aggregate_id == aggregate_id and after < (each.version or 0) <= to
            ]

        shadow = Shadow(projection=ledger.app.projection(name), generation=2, owner="the test")
        return Gathering(
            read_models=read_models,
            shadow=shadow,
            missing=find,
            **{"offsets": {}, "messages_max": 1_000, **choices},
        )

    return make


@pytest.fixture
def history(ledger: Any) -> list[EventStream]:
    """Bookings of seven aggregates, some of which end; each stream stands there twice."""
    streams = []
    for key in "abcdefg":
        for version in range(1, 9):
            streams.append(
                ledger.stream(
                    key, version, ledger.Booked(partner=f"p{version % 3}", amount=version)
                )
            )
    streams += [ledger.stream(key, 9, ledger.Ended()) for key in "bdf"]
    random.Random(7).shuffle(streams)
    streams.sort(key=lambda each: each.version or 0)
    return [each for each in streams for _ in range(2)]


def told(streams: Sequence[EventStream]) -> list[Told]:
    return [tell(stream, lambda _: True) for stream in streams]


async def rows(models: ReadModels, projection: Any) -> Any:
    reader = models.reader(projection, generation=2)
    return {getattr(row, projection.key): row async for row in reader.rows()}


@pytest.mark.parametrize("name", ["accounts", "partners"])
@pytest.mark.parametrize(("messages_max", "kept_max"), [(1_000, 1_000), (5, 1_000), (5, 2)])
async def test_the_rows_are_those_of_one_fold(
    name: str, messages_max: int, kept_max: int, gather: Any, history: list[EventStream],
    read_models: ReadModels, ledger: Any,
) -> None:  # fmt: skip
    projection = ledger.app.projection(name)
    if name == "partners":
        await read_models.ensure(projection)
        assert await read_models.begin_shadow(projection, "the test") == 2
    gathering = gather(name, messages_max=messages_max, kept_max=kept_max)
    counts: Counter[str] = Counter()
    for place in range(0, len(history), 3):
        some = history[place : place + 3]
        taken = await gathering.add(Q0, place + len(some), told(some))
        counts += taken.counts([len(one.events) for one in some])
    await gathering.write()
    passed = [each for place, each in enumerate(history) if place % 2 == 0]
    assert counts == {
        "events": sum(len(one.events) for one in passed),
        "duplicates": len(history) - len(passed),
    }
    wanted = fold_streams(projection, {}, passed)
    assert await rows(read_models, projection) == {
        key: row for key, row in wanted.items() if row is not None
    }
    assert await read_models.offsets(name, 2) == {Q0: len(history)}


@pytest.fixture
def asked() -> Iterator[list[str]]:
    """The statements that databases were given."""
    statements: list[str] = []

    def keep(*of: Any) -> None:
        statements.append(of[2])

    event.listen(Engine, "before_cursor_execute", keep)
    yield statements
    event.remove(Engine, "before_cursor_execute", keep)


@pytest.mark.parametrize("name", ["accounts", "partners"])
async def test_what_no_table_holds_is_not_looked_for_and_is_copied_in(
    name: str, gather: Any, read_models: ReadModels, ledger: Any, asked: list[str]
) -> None:
    projection = ledger.app.projection(name)
    if name == "partners":
        await read_models.ensure(projection)
        assert await read_models.begin_shadow(projection, "the test") == 2
    streams = [
        ledger.stream(f"a{number}", 1, ledger.Booked(partner=f"p{number}", amount=number + 1))
        for number in range(1_000)
    ]
    gathering = gather(name, messages_max=200, kept_max=300)
    asked.clear()
    for place in range(0, 1_000, 100):
        await gathering.add(Q0, place + 100, told(streams[place : place + 100]))
    await gathering.write()
    assert gathering.reads_back
    looked = [each for each in asked if "json_each" in each or "ANY" in each]
    in_place = [each for each in asked if "ON CONFLICT" in each and "_offsets" not in each]
    assert (looked, in_place) == ([], [])
    assert len(await rows(read_models, projection)) == 1_000
    # Those that were written are, though memory has forgotten them.
    await gathering.add(Q0, 1_001, told([ledger.stream("a7", 2, ledger.Ended())]))
    await gathering.write()
    assert any("json_each" in each or "ANY" in each for each in asked)
    assert len(await rows(read_models, projection)) == (999 if name == "accounts" else 1_000)


async def test_rows_in_memory_go_on_from_the_written_ones(
    gather: Any, history: list[EventStream], read_models: ReadModels, ledger: Any
) -> None:
    first = gather(messages_max=30)
    await first.add(Q0, 30, told(history[:30]))
    await first.add(Q0, 40, told(history[30:40]))
    stood = await read_models.offsets("accounts", 2)
    assert stood == {Q0: 30}
    second = gather(offsets=stood)
    await second.add(Q0, len(history), told(history[30:]))
    await second.add(Q1, 1, [])
    await second.write()
    wanted = fold_streams(ledger.accounts, {}, history[::2])
    assert await rows(read_models, ledger.accounts) == {
        key: row for key, row in wanted.items() if row is not None
    }
    assert await read_models.offsets("accounts", 2) == {Q0: len(history), Q1: 1}


async def test_missing_versions_come_from_the_event_store(
    gather: Any, read_models: ReadModels, ledger: Any
) -> None:
    streams = [
        ledger.stream("a", version, ledger.Booked(partner="p", amount=1)) for version in (1, 2, 3)
    ]
    gathering = gather(stored=streams)
    taken = await gathering.add(Q0, 1, told(streams[2:]))
    assert taken.counts([1]) == {"events": 3, "duplicates": 0, "gaps": 1, "filled": 2}
    # Another queue has them, and is read later.
    taken = await gathering.add(Q1, 2, told(streams[:2]))
    assert taken.counts([1, 1]) == {"events": 0, "duplicates": 2, "gaps": 0, "filled": 0}
    await gathering.write()
    assert await rows(read_models, ledger.accounts) == fold_streams(ledger.accounts, {}, streams)
    with pytest.raises(ProjectionError, match="versions 4 to 6 of"):
        await gathering.add(
            Q0, 2, told([ledger.stream("a", 7, ledger.Booked(partner="p", amount=1))])
        )


async def test_nothing_is_written_over_the_work_of_another(
    gather: Any, history: list[EventStream], read_models: ReadModels
) -> None:
    one, other = gather(), gather()
    await one.add(Q0, 4, told(history[:4]))
    await other.add(Q0, 2, told(history[:2]))
    await one.write()
    with pytest.raises(ProjectionError, match="no longer the shadow"):
        await other.write()
    assert await read_models.offsets("accounts", 2) == {Q0: 4}


KEYS = st.sets(st.text(max_size=5), max_size=200)


@given(written=KEYS, others=KEYS, bits=st.sampled_from([1, 8, 1 << 10, 1 << 20]))
def test_no_written_key_is_forgotten(written: set[str], others: set[str], bits: int) -> None:
    keys = WrittenKeys(bits)
    assert keys.among(written | others) == set()
    keys.add(written)
    keys.add(sorted(written))
    assert written <= keys.among(written | others)


def test_few_others_are_taken_for_written_ones() -> None:
    keys = WrittenKeys(1 << 20)
    keys.add(f"a-{number}" for number in range(50_000))
    assert keys.among(f"a-{number}" for number in range(50_000)) == {
        f"a-{number}" for number in range(50_000)
    }
    # A tenth of the bits is set at most, and two of them are looked at.
    assert len(keys.among(f"b-{number}" for number in range(50_000))) < 1_000
