"""
`headrace projection switch` and `rollback` in a garden whose fold changes; `pause`, `resume` and `reset`
on a shop that has sold three things.
"""

import asyncio
import importlib
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

import headrace.cli
from headrace import (
    Aggregate,
    App,
    DomainEvent,
    EventContext,
    Index,
    Projection,
    Settings,
    applies,
)
from headrace.domain.stream import EventStream
from headrace.errors import ProjectionError, ProjectionNotFound
from headrace.stores.open import open_event_store


class Sown(DomainEvent):
    seeds: int


class Bed(Aggregate):
    @applies
    def _sown(self, event: Sown) -> None:
        pass


class Plants(BaseModel):
    bed_id: str
    plants: int


def garden(each: int, version: int = 1, indexes: Sequence[Index] = ()) -> App:
    """Beds in which each seed becomes so many plants."""
    app = App("garden")
    beds = Projection("beds", row=Plants, key="bed_id", version=version, indexes=indexes)

    @beds.fold
    def sown(row: Plants | None, event: Sown, context: EventContext) -> Plants:
        before = row.plants if row else 0
        return Plants(bed_id=context.aggregate_id, plants=before + each * event.seeds)

    app.add(Bed, beds)
    return app


def sowing(version: int, bed: str = "b") -> EventStream:
    return EventStream(
        aggregate_type="Bed",
        aggregate_id=bed,
        version=version,
        command_id=f"{bed}-{version}",
        correlation_id=f"{bed}-{version}",
        recorded_at=datetime(2026, 1, 31, tzinfo=UTC),
        events=(Sown(seeds=version),),
    )


@pytest.fixture
def projection(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs a command about projections of the garden, whose folds are of now."""
    module = ModuleType("unit_garden")
    module.app = garden(1)  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "unit_garden", module)
    # No runner is there that could bring the live table on while a rebuild waits for it.
    monkeypatch.setattr("headrace.rebuild.source._STILL_MS", 200)
    urls = {name: f"sqlite:///{tmp_path / f'{name}.db'}" for name in ("event-store", "read-models")}

    async def append(*versions: int, bed: str = "b") -> None:
        store = await open_event_store(urls["event-store"], garden(1).serializer)
        await store.append([sowing(version, bed) for version in versions])
        await store.aclose()

    def run_it(command: str, *options: str) -> Any:
        given = [f"--read-models={urls['read-models']}"]
        if command not in {"rollback", "index"}:
            given.append(f"--event-store={urls['event-store']}")
        return run("projection", command, "beds", *options, *given, "--app", "unit_garden:app")

    run_it.append = lambda *versions, **of: asyncio.run(append(*versions, **of))  # type: ignore[attr-defined]  # as one
    run_it.fold = lambda *of: setattr(module, "app", garden(*of))  # type: ignore[attr-defined]  # as one
    run_it.append(1, 2)  # type: ignore[attr-defined]  # as above
    return run_it


@pytest.fixture
def plants(tmp_path: Path) -> Any:
    def read() -> int:
        with closing(sqlite3.connect(tmp_path / "read-models.db")) as database:
            ((found,),) = database.execute("SELECT plants FROM beds WHERE bed_id = 'b'").fetchall()
            return int(found)

    return read


STORE = ("--from", "store", "--no-broker")


def test_a_rebuild_with_differences_goes_live_by_a_second_command(
    projection: Any, plants: Any
) -> None:
    assert projection("rebuild", *STORE).status == 0
    assert plants() == 3
    projection.fold(2)
    done = projection("rebuild", *STORE)
    assert (done.status, plants()) == (1, 3)
    for said in (
        "compared 1 rows with the live table: 1 differ",
        "  1 differ in plants",
        "    b: live 3, rebuilt 6",
        "not switched: 1 of 1 rows differ from the live ones",
        "beds__3",
        "`headrace projection switch beds`",
    ):
        assert said in done.output
    projection.append(3)
    done = projection("switch", "--no-broker")
    assert (done.status, plants()) == (0, 12)
    assert "1 messages caught up; table beds__3 with 1 rows is live" in done.output
    done = projection("rollback")
    assert (done.status, plants()) == (0, 3)
    assert "projection beds is back at generation 2" in done.output
    with pytest.raises(ProjectionError, match="no rebuilt table that was kept"):
        projection("switch", "--no-broker")


def test_accepted_differences_are_reported_and_go_live_at_once(
    projection: Any, plants: Any
) -> None:
    assert projection("rebuild", *STORE).status == 0
    projection.fold(2)
    done = projection("rebuild", *STORE, "--accept-differences")
    assert (done.status, plants()) == (0, 6)
    assert "  1 differ in plants" in done.output
    assert "table beds__3 is live" in done.output


def test_a_rebuild_with_as_many_differences_as_expected_goes_live_and_no_other(
    projection: Any, plants: Any
) -> None:
    projection.append(1, bed="c")
    assert projection("rebuild", *STORE).status == 0
    projection.fold(2)
    done = projection("rebuild", *STORE, "--expect-differences", "1")
    assert (done.status, plants()) == (1, 3)
    assert "not switched: 2 of 2 rows differ from the live ones, more than the 1 expected" in (
        done.output
    )
    done = projection("rebuild", *STORE, "--expect-differences", "2")
    assert (done.status, plants()) == (0, 6)
    assert "  2 differ in plants" in done.output
    for other in ("--accept-differences", "--no-verify"):
        done = projection("rebuild", *STORE, "--expect-differences", "2", other)
        assert done.status == 2


def test_a_new_version_of_a_fold_is_rebuilt_and_goes_live(
    projection: Any, plants: Any, run: Any, tmp_path: Path
) -> None:
    def listed() -> tuple[str, dict[int, tuple[int, str]]]:
        url = f"sqlite:///{tmp_path / 'read-models.db'}"
        done = run("projection", "list", "--json", "--read-models", url, "--app", "unit_garden:app")
        (row,) = map(json.loads, done.output.splitlines())
        return row["state"], {
            each["generation"]: (each["version"], each["is"]) for each in row["generations"]
        }

    assert projection("rebuild", *STORE).status == 0
    assert listed() == ("live", {1: (1, "previous"), 2: (1, "live")})
    projection.fold(2, 2)
    state, _ = listed()
    assert state.startswith(
        "waits: its rows are of version 1 and this code has version 2; a service with this code, or `hea"
    )
    done = projection("rebuild", *STORE, "--no-switch")
    assert (done.status, plants()) == (1, 3)
    assert "    b: live 3, rebuilt 6" in done.output
    _, tables = listed()
    assert tables == {1: (1, "previous"), 2: (1, "live"), 3: (2, "kept")}
    assert projection("switch", "--no-broker").status == 0
    assert listed() == ("live", {2: (1, "previous"), 3: (2, "live")})
    assert plants() == 6
    projection.fold(1, 1)
    done = projection("rollback")
    assert (done.status, plants(), listed()[0]) == (0, 3, "live")
    projection.fold(3, 3)
    done = projection("rebuild", *STORE)
    assert (done.status, plants()) == (0, 9)


def test_a_dry_run_tells_what_a_rebuild_would_do_and_does_nothing(
    projection: Any, plants: Any
) -> None:
    assert projection("rebuild", *STORE).status == 0
    projection.fold(2, 2)
    done = projection("rebuild", *STORE, "--dry-run")
    assert (done.status, plants()) == (0, 3)
    assert "projection beds: 2 messages to read, about " in done.output
    assert (
        "live is generation 2 of version 1 with 1 rows; the new rows would be of version 2,"
        " compared with them, and put in place"
    ) in done.output
    told = json.loads(projection("rebuild", *STORE, "--dry-run", "--json").output)
    assert (sum(told["messages"].values()), told["sampled"]) == (2, 2)
    kept = projection("rebuild", *STORE, "--dry-run", "--no-switch")
    assert "and kept next to them" in kept.output
    assert plants() == 3


def test_a_table_that_is_not_live_is_dropped(projection: Any, run: Any, tmp_path: Path) -> None:
    def drop(generation: int) -> Any:
        url = f"sqlite:///{tmp_path / 'read-models.db'}"
        given = ("--read-models", url, "--app", "unit_garden:app")
        return run("projection", "drop", "beds", str(generation), *given)

    assert projection("rebuild", *STORE).status == 0
    done = drop(1)
    assert (done.status, done.output) == (0, "generation 1 of projection beds is gone\n")
    done = drop(1)
    assert done.status == 2
    assert "projection beds has the generations 2" in done.output
    with pytest.raises(ProjectionError, match="generation 2 is in use"):
        drop(2)


def test_a_rebuild_without_a_switch_says_how_to_switch(projection: Any, plants: Any) -> None:
    done = projection("rebuild", *STORE, "--no-switch", "--no-verify")
    assert done.status == 0
    assert "not switched: as asked" in done.output
    assert "`headrace projection switch beds`" in done.output
    assert projection("switch", "--no-broker").status == 0
    assert plants() == 3


SHOP = """
from headrace import (
    Aggregate, AggregateId, App, Command, CommandContext, DomainEvent, EventContext, Projection,
    applies,
)
from pydantic import BaseModel


class Sell(Command):
    product_id: AggregateId


class Sold(DomainEvent):
    pass


class Product(Aggregate):
    def initial_state(self) -> None: ...

    @applies
    def _sold(self, event: Sold) -> None: ...


class Sales(BaseModel):
    product_id: str


app = App("shop")
sales = Projection("sales", row=Sales, key="product_id")
app.add(Product, sales)


@app.handles
async def sell(command: Sell, context: CommandContext) -> None:
    product = Product(command.product_id)
    product.record(Sold())
    context.add(product)


@sales.fold
def sold(row: Sales | None, event: Sold, context: EventContext) -> Sales:
    return Sales(product_id=context.aggregate_id)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "pausing_shop.py").write_text(SHOP, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    module: Any = importlib.import_module("pausing_shop")
    settings = Settings(read_models=f"sqlite:///{tmp_path / 'read.db'}")

    async def sell() -> None:
        async with module.app.run_local(settings) as running:
            for product_id in "abc":
                await running.bus.execute(
                    module.Sell(product_id=product_id), wait_for=[module.sales]
                )
            await running.watch.check_lag()

    asyncio.run(sell())
    yield
    del sys.modules["pausing_shop"]


@pytest.fixture
def ask(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    environment = {
        "HEADRACE_READ_MODELS": f"sqlite:///{tmp_path / 'read.db'}",
        "HEADRACE_APP": "pausing_shop:app",
        "TERM": "dumb",
    }

    def run(*arguments: str) -> tuple[int, str]:
        line = ["projection", *arguments]
        done = CliRunner().invoke(headrace.cli._command_line(), line, env=environment)
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done.exit_code, done.output

    return run


def listed(ask: Any) -> Any:
    return json.loads(ask("list", "--json")[1])


def test_a_projection_is_paused_and_resumed(shop: None, ask: Any) -> None:
    assert ask("pause", "sales") == (0, "projection sales is paused\n")
    assert ask("pause", "sales")[0] == 0  # a second time changes nothing
    assert listed(ask)["state"] == "paused"
    assert ask("resume", "sales") == (0, "projection sales goes on\n")
    assert listed(ask) == {
        "projection": "sales", "generation": 1, "rows": 3, "parked": 0, "state": "live",
        "version": 1, "generations": [{"generation": 1, "version": 1, "is": "live"}],
    }  # fmt: skip
    with pytest.raises(ProjectionNotFound, match="it has: sales"):
        ask("pause", "others")


def test_a_projection_starts_over_and_rolls_back(shop: None, ask: Any) -> None:
    assert ask("reset", "sales") == (0, "projection sales starts over as generation 2\n")
    assert (listed(ask)["generation"], listed(ask)["rows"]) == (2, 0)
    ask("rollback", "sales")
    assert (listed(ask)["generation"], listed(ask)["rows"]) == (1, 3)
    status, said = ask("reset", "sales", "--at", "0-3")
    assert (status, "write QUEUE:OFFSET" in said) == (2, True)


def test_indexes_of_the_live_table_follow_the_definition(projection: Any) -> None:
    assert projection("rebuild", *STORE).status == 0
    projection.fold(1, 1, [Index("plants"), Index("plants", "bed_id", unique=True)])
    done = projection("index")
    assert (done.status, done.output) == (0, "projection beds: 2 indexes made, 0 dropped\n")
    projection.fold(1)
    assert "0 indexes made, 2 dropped" in projection("index").output


def test_rows_that_break_an_index_are_named_by_the_command(projection: Any) -> None:
    projection.append(1, bed="c")
    projection.append(2, bed="c")
    assert projection("rebuild", *STORE).status == 0
    projection.fold(1, 1, [Index("plants", unique=True)])
    with pytest.raises(ProjectionError, match="rows b and c of beds__2 have the same plants=3"):
        projection("index")
