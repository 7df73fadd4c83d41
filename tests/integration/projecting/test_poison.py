"""A poison event from its first failure to the repaired release: by API, through an upcaster."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Process,
    Projection,
    Settings,
    applies,
)
from headrace._runtime.backoff import Backoff
from headrace.app import RunningApp


class Sell(Command):
    product_id: AggregateId
    pieces: int
    first: bool = False


class Sales(BaseModel):
    product_id: str
    pieces: list[int] = []


class Row(BaseModel):
    product_id: str
    pieces: str = ""


def make_app(*, mended: bool) -> tuple[App, Any, Any]:
    """The first release has events that nobody can count; the next one upcasts them."""

    if mended:

        class Sold(DomainEvent, version=2):
            count: int

    else:

        class Sold(DomainEvent):  # type: ignore[no-redef]  # one release or the other
            pieces: int

    class Product(Aggregate):
        def initial_state(self) -> None:
            self.sold = 0

        @applies
        def _sold(self, event: Sold) -> None:
            self.sold += 1

    app = App("shop")
    rows = Projection("rows", row=Row, key="product_id")
    sales = Process("sales", state=Sales)
    app.add(Product, rows, sales)

    @app.handles
    async def sell(command: Sell, context: CommandContext) -> None:
        if command.first:
            product = Product(command.product_id)
            context.add(product)
        else:
            product = await context.get(Product, command.product_id)
        product.record(
            Sold(count=command.pieces) if mended else Sold(pieces=command.pieces)  # type: ignore[call-arg]  # of its release
        )

    @rows.fold
    def counted(row: Row | None, event: Sold, context: EventContext) -> Row:
        count = _count(event)
        before = row.pieces if row else ""
        return Row(product_id=context.aggregate_id, pieces=f"{before} {count}")

    @sales.on
    def sold(state: Sales | None, event: Sold, context: EventContext) -> Iterable[Any]:
        state = state or Sales(product_id=context.aggregate_id)
        yield state.model_copy(update={"pieces": [*state.pieces, _count(event)]})

    if mended:

        @app.upcasts(Sold, 1)
        def sold_2(data: dict[str, Any]) -> dict[str, Any]:
            return {"count": abs(data["pieces"])}

    return app, rows, sales


def _count(event: Any) -> int:
    count: int = event.pieces if hasattr(event, "pieces") else event.count
    if count < 0:
        raise ValueError(f"{count} pieces cannot be counted")
    return count


@pytest.fixture
def settings(database_url: str, tmp_path: Any) -> Settings:
    return Settings(
        event_store=f"sqlite:///{tmp_path / 'events.db'}",
        read_models=database_url,
        error_retries_max=1,
        retry_ms_min=1,
        retry_ms_max=1,
        alarm_check_ms=1,
    )


@asynccontextmanager
async def sold(app: App, settings: Settings, *pieces: tuple[str, int]) -> AsyncIterator[RunningApp]:
    async with app.run_local(settings) as running:
        known: set[str] = set()
        for product_id, count in pieces:
            first = product_id not in known
            known.add(product_id)
            await running.bus.execute(Sell(product_id=product_id, pieces=count, first=first))
        yield running


async def until(condition: Any) -> None:
    """Looks until something holds; the test's own timeout is the bound."""
    looks, attempt = Backoff(ms_min=5, ms_max=50), 0
    while not await condition():
        attempt += 1
        await looks.pause(attempt)


async def test_events_behind_a_letter_are_applied_in_order_by_the_release_that_upcasts_them(
    settings: Settings, request: pytest.FixtureRequest
) -> None:
    if settings.read_models.startswith("postgresql"):
        from headrace.stores.database.schema import upgrade

        await upgrade(settings.read_models)
    app, rows, sales = make_app(mended=False)
    poison = [("ink", 1), ("ink", -2), ("ink", 3), ("pen", 4)]
    async with sold(app, settings, *poison) as running:
        letters = running.projection_letters(rows)

        async def both_wait() -> bool:
            parked = await letters.all()
            stuck = await running.processes.all(stuck=True)
            return [one.held for one in parked] == [2] and [one.waiting for one in stuck] == [2]

        await until(both_wait)

        async def pen_flows() -> bool:
            row = await running.read(rows).get("pen")
            found = [one.key for one in await running.processes.all()]
            return row is not None and found == ["ink", "pen"]

        await until(pen_flows)
        alarms = [one for one in await _alarms(running) if one.kind == "letters"]
        assert [(one.projection, one.value) for one in alarms] == [
            ("instances:sales", 1),
            ("rows", 1),
        ]
        left = await letters.retry("ink")
        assert left is not None
        (stuck,) = await running.processes.all(stuck=True)
        for where in (left.traceback, stuck.stuck[0].traceback):
            # The line of the user's code, not only the sentence.
            assert 'raise ValueError(f"{count} pieces cannot be counted")' in where
        assert await running.stuck_instances(sales).retry("ink") is not None

    app, rows, sales = make_app(mended=True)
    async with sold(app, settings) as running:
        assert await running.projection_letters(rows).retry("ink") is None
        assert await running.stuck_instances(sales).retry("ink") is None
        row = await running.read(rows).get("ink")
        assert row is not None
        assert row.pieces == " 1 2 3"
        assert (await running.processes.get("sales", "ink")).state["pieces"] == [1, 2, 3]


async def _alarms(running: RunningApp) -> Any:
    found: list[Any] = []

    async def any_alarm() -> bool:
        assert running.watch is not None
        found[:] = running.watch.alarms.current
        return bool(found)

    await until(any_alarm)
    return found
