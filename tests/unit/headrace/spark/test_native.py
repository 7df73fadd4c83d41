"""A projection becomes SQL where SQL can say it, and groups become its rows."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import BaseModel

from headrace.app import App
from headrace.domain.aggregate import Aggregate, applies
from headrace.domain.message import DomainEvent, EventContext
from headrace.errors import ProjectionError
from headrace.folds import count, field, first, last, max_, min_, sum_
from headrace.projections.definition.projection import Projection
from headrace.spark.executor.event_reader import EVENT
from headrace.spark.executor.fold import MISSING, ROW, VERSION
from headrace.spark.native import finish_rows, plan_native
from headrace.spark.rows import RowCodec


class Paid(DomainEvent):
    amount: int
    price: Decimal
    rate: float
    partner: str
    on: date
    at: datetime


class Refunded(Paid):
    pass


class Closed(DomainEvent):
    pass


class Till(Aggregate):
    @applies
    def _paid(self, event: Paid) -> None:
        pass

    @applies
    def _refunded(self, event: Refunded) -> None:
        pass

    @applies
    def _closed(self, event: Closed) -> None:
        pass


class Row(BaseModel):
    key: str
    total: int
    rate: float
    worth: Decimal
    number: int | None
    word: str | None
    on: date | None
    at: datetime | None
    price: Decimal | None
    same: str = "same"


def plan(define: Callable[[Projection[Row]], None]) -> tuple[Any, Projection[Row], App]:
    projection = Projection("tills", row=Row, key="key")
    define(projection)
    app = App("tills")
    app.add(Till, projection)
    return plan_native(app.serializer, projection), projection, app


def test_what_is_declared_becomes_one_aggregation() -> None:
    native, _, _ = plan(lambda tills: tills.on(Paid, total=sum_("amount"), number=max_("amount")))
    assert native.aggregates == {"a0": "sum(v0)", "a1": "max(v1)"}
    # A subclass without rules of its own is no other type to SQL.
    assert native.values["v0"] == (
        "case when (place = 0 and type in (0, 1) and true) then `e_amount_integer` end"
    )
    assert {each.name for each in native.reading.types} == {"Paid", "Refunded"}
    assert native.reading.context == ("aggregate_id",)
    assert [field.name for field in native.reading.types[0].fields] == ["amount"]


def test_several_keys_are_several_places() -> None:
    def define(tills: Projection[Row]) -> None:
        tills.on(Paid, key="partner", total=sum_("amount"))
        tills.on(Paid, total=sum_(-field("amount")))

    native, _, _ = plan(define)
    assert native.keys == (
        "case when type in (0, 1) then `e_partner_text` end",
        "case when type in (0, 1) then `c_aggregate_id` end",
    )


def test_a_rule_that_no_event_is_left_for_is_left_out() -> None:
    def define(tills: Projection[Row]) -> None:
        tills.on(DomainEvent, key="context.command_id", total=count())
        for each in (Paid, Refunded, Closed):
            tills.on(each, total=count())

    native, _, _ = plan(define)
    assert len(native.keys) == 1
    assert "c_command_id" not in native.keys[0]
    assert native.reading.context == ("aggregate_id",)


def test_rules_that_one_event_may_meet_both_are_added_up_apart() -> None:
    def define(tills: Projection[Row]) -> None:
        tills.on(Paid, total=sum_("amount"))
        tills.on(Paid, where=field("amount") > 5, total=sum_("amount"))
        tills.on(Closed, total=count())

    native, _, _ = plan(define)
    assert [kept.parts for kept in native.columns if kept.name == "total"] == [(("a0",), ("a1",))]


@pytest.mark.parametrize(
    "define",
    [
        lambda tills: tills.on(Paid, key=lambda event: event.partner, total=count()),
        lambda tills: tills.on(Paid, rate=sum_("rate")),
        lambda tills: (tills.on(Paid, total=count()), tills.on(Closed, total=last("context.version"))),
        lambda tills: tills.fold(closed),
        lambda tills: (tills.on(Paid, total=count()), tills.fold(closed)),
    ],
)  # fmt: skip
def test_what_sql_cannot_say_alike_is_left_to_python(define: Any) -> None:
    assert plan(define)[0] is None


def closed(row: Row | None, event: Closed, context: EventContext) -> Row | None:
    return row


@pytest.fixture
def finish(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Finishes groups of a plan; returns rows by key, and other records."""

    def run(planned: tuple[Any, Projection[Row], App], **columns: list[Any]) -> Any:
        native, projection, app = planned
        monkeypatch.setattr("headrace.spark.native.load_application", lambda *of: app)
        count = len(columns["key"])
        groups = {"kind": [EVENT] * count, "number": [None] * count, **columns}
        fold_plan: Any = SimpleNamespace(app="", folder="", projection="tills")
        codec: RowCodec[Any] = RowCodec(projection)
        rows, others = {}, []
        for batch in finish_rows(fold_plan, native, iter([pa.RecordBatch.from_pydict(groups)])):
            for record in batch.to_pylist():
                if record["kind"] == ROW:
                    rows[record["key"]] = codec.row(record["data"])
                else:
                    others.append((record["kind"], record["key"], record["number"], record["data"]))
        return rows, others

    return run


def test_a_group_becomes_a_row_that_begins_with_what_the_model_says(finish: Any) -> None:
    planned = plan(
        lambda tills: tills.on(
            Paid,
            total=sum_("amount"),
            worth=sum_("price"),
            word=last("partner"),
            on=first("on"),
            at=last("at"),
            price=min_("price"),
            number=max_("amount"),
        )
    )
    parts = {kept.name: kept.parts[0] for kept in planned[0].columns if kept.parts}
    columns = {
        parts["total"][0]: [7, None],
        parts["worth"][0]: [Decimal("3.500000000000000000"), None],
        parts["worth"][1]: [2, None],
        parts["word"][0]: [None, None],
        parts["word"][1]: [2, 0],
        parts["on"][0]: [-1, None],
        parts["at"][0]: [-1, None],
        parts["at"][1]: [2, 0],
        parts["price"][0]: [Decimal("0E-18"), None],
        parts["price"][1]: [2, None],
        parts["number"][0]: [None, 3],
    }
    rows, _ = finish(planned, key=["a", "b"], **columns)
    assert repr(rows["a"].worth) == "Decimal('3.50')"
    assert repr(rows["a"].price) == "Decimal('0.00')"
    assert rows["a"].total == 7
    assert rows["a"].on == date(1969, 12, 31)
    assert rows["a"].at == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    assert (rows["a"].word, rows["a"].same, rows["a"].number) == (None, "same", None)
    assert (rows["b"].total, rows["b"].worth, rows["b"].number) == (0, Decimal(0), 3)


def test_what_the_gate_told_goes_on_as_it_is(finish: Any) -> None:
    planned = plan(lambda tills: tills.on(Paid, total=count()))
    _, others = finish(
        planned, kind=[VERSION, MISSING], key=["a", "b versions 1 to 2"], number=[3, 0], a0=[None] * 2
    )  # fmt: skip
    assert others == [(VERSION, "a", 3, b""), (MISSING, "b versions 1 to 2", 0, b"b versions 1 to 2")]  # fmt: skip


def test_a_key_that_no_key_column_holds_is_an_error(finish: Any) -> None:
    planned = plan(lambda tills: tills.on(Paid, total=count()))
    with pytest.raises(ProjectionError, match="a key is a str of at most 255"):
        finish(planned, key=["x" * 256], a0=[1])
