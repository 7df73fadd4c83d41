"""Folding turns streams into row changes, and names the event that it cannot fold."""

import subprocess
import sys
import traceback
from typing import Annotated, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from headrace.domain.message import DomainEvent
from headrace.errors import ProjectionError
from headrace.projections.definition.expressions import field
from headrace.projections.definition.fold import find_touches, fold, fold_streams
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.summaries import count, first, last, max_, min_, sum_
from headrace.subjects.personal import Personal


def test_events_of_one_key_are_folded_one_after_another(domain: Any, totals: Any) -> None:
    streams = [domain.stream("a", 1), domain.stream("b", 1), domain.stream("a", 2)]
    assert fold_streams(totals, {}, streams) == {
        "a": domain.Total(counter_id="a", total=3, folded=2),
        "b": domain.Total(counter_id="b", total=1, folded=1),
    }


def test_folding_goes_on_from_the_current_rows_and_leaves_them_alone(
    domain: Any, totals: Any
) -> None:
    rows = {"a": domain.Total(counter_id="a", total=10, folded=4)}
    changes = fold_streams(totals, rows, [domain.stream("a", 5, domain.Added(amount=1))])
    assert changes == {"a": domain.Total(counter_id="a", total=11, folded=5)}
    assert rows["a"].total == 10


def test_a_fold_that_returns_none_deletes_the_row(domain: Any, totals: Any) -> None:
    rows = {"a": domain.Total(counter_id="a", total=10)}
    assert fold_streams(totals, rows, [domain.stream("a", 2, domain.Cleared())]) == {"a": None}


def test_a_row_deleted_and_made_again_in_one_go_is_new(domain: Any, totals: Any) -> None:
    rows = {"a": domain.Total(counter_id="a", total=10, folded=9)}
    stream = domain.stream("a", 2, domain.Cleared(), domain.Added(amount=3))
    assert fold_streams(totals, rows, [stream]) == {
        "a": domain.Total(counter_id="a", total=3, folded=1)
    }


def test_events_without_a_fold_and_rejections_touch_nothing(domain: Any, totals: Any) -> None:
    streams = [domain.stream("a", 1, domain.Noted(text="x")), domain.rejection("a", "c-2")]
    assert find_touches(totals, streams) == []
    assert fold_streams(totals, {}, streams) == {}


def test_touches_name_key_event_and_context(domain: Any, totals: Any) -> None:
    stream = domain.stream("a", 1, domain.Noted(text="x"), domain.Added(amount=3))
    ((key, event, context, rule),) = find_touches(totals, [stream])
    assert (key, event, context.event_id, rule) == ("a", domain.Added(amount=3), "a/1/2", 0)


def test_a_fold_that_raises_is_an_error_that_names_the_event(domain: Any, totals: Any) -> None:
    stream = domain.stream("a", 7, domain.Added(amount=666))
    with pytest.raises(ProjectionError, match=r"totals cannot fold Added a/7/1: RuntimeError"):
        fold_streams(totals, {}, [stream])


class Registered(DomainEvent):
    who: str
    email: Annotated[str, Personal(subject="who")]


class Strict(BaseModel):
    number: int


class Stubborn(Exception):
    """Its text cannot be changed."""

    def __str__(self) -> str:
        return "no such customer: ann@example.org"


@pytest.mark.parametrize(
    "fold_all", [fold_streams, lambda odd, _, streams: find_touches(odd, streams)]
)
def test_the_traceback_of_a_fold_that_raises_tells_no_personal_value(
    domain: Any, fold_all: Any
) -> None:
    event = Registered(who="c-1", email="ann@example.org")

    def fail_on_input(*_: Any) -> Any:
        return Strict(number=event.email)  # type: ignore[arg-type]  # on purpose

    def fail_stubbornly(*_: Any) -> Any:
        raise Stubborn

    for fail in (fail_on_input, fail_stubbornly):
        odd = Projection("odd", row=domain.Total, key="counter_id", key_of=fail)

        @odd.fold
        def registered(row: Any, event: Registered, context: Any) -> Any:
            return row

        with pytest.raises(ProjectionError, match="odd cannot fold Registered") as raised:
            fold_all(odd, {}, [domain.stream("a", 1, event)])
        assert "ann@" not in "".join(traceback.format_exception(raised.value))


def test_a_row_that_does_not_fit_its_columns_is_an_error_that_names_the_event(domain: Any) -> None:
    odd = Projection("odd", row=domain.Total, key="counter_id")

    @odd.fold
    def noted(row: Any, event: domain.Noted, context: Any) -> Any:
        return domain.Total(counter_id="a").model_copy(update={"total": event.text})

    stream = domain.stream("a", 1, domain.Noted(text="many"))
    with pytest.raises(ProjectionError, match=r"odd cannot fold Noted a/1/1: DefinitionError"):
        fold_streams(odd, {}, [stream])


@pytest.mark.parametrize("key", [None, 7, "x" * 256])
def test_a_key_that_no_key_column_holds_is_an_error(domain: Any, key: Any) -> None:
    odd = Projection("odd", row=domain.Total, key="counter_id", key_of=lambda *_: key)

    @odd.fold
    def added(row: Any, event: domain.Added, context: Any) -> Any:
        raise AssertionError

    with pytest.raises(ProjectionError, match="a key is a str of at most 255"):
        find_touches(odd, [domain.stream("a", 1)])


def test_a_key_function_that_raises_is_an_error_that_names_the_event(domain: Any) -> None:
    def fail(event: Any, context: Any) -> str:
        raise KeyError("nope")

    odd = Projection("odd", row=domain.Total, key="counter_id", key_of=fail)

    @odd.fold
    def added(row: Any, event: domain.Added, context: Any) -> Any:
        raise AssertionError

    with pytest.raises(ProjectionError, match=r"cannot fold Added a/1/1: KeyError"):
        find_touches(odd, [domain.stream("a", 1)])


def test_an_executor_that_folds_loads_no_database_code() -> None:
    code = (
        "import sys, headrace.projections.definition.fold as folding;"
        "sys.exit(any(name.partition('.')[0] in ('sqlalchemy', 'alembic') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


STREAMS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-5, 5)), max_size=40)


# The fixtures are values that no example changes.
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), steps=STREAMS)
def test_any_batching_gives_the_same_rows(
    domain: Any, totals: Any, data: st.DataObject, steps: list[Any]
) -> None:
    streams = [
        domain.stream(key, n, domain.Added(amount=amount) if amount else domain.Cleared())
        for n, (key, amount) in enumerate(steps, start=1)
    ]
    at_once = {
        key: row for key, row in fold_streams(totals, {}, streams).items() if row is not None
    }
    rows: dict[str, Any] = {}
    while streams:
        size = data.draw(st.integers(1, len(streams)))
        touches = find_touches(totals, streams[:size])
        for key, row in fold(totals, rows, touches).items():
            rows[key] = row
            if row is None:
                del rows[key]
        streams = streams[size:]
    assert rows == at_once


class Kept(BaseModel):
    key: str
    total: int = 0
    times: int = 0
    first: int | None = None
    last: int = 0
    smallest: int | None = None
    largest: int | None = None


def make_kept(domain: Any) -> Projection[Kept]:
    """Declared columns for two rows of every event, and a fold that deletes."""
    kept = Projection("kept", row=Kept, key="key")
    for key in ("context.aggregate_id", "context.command_id"):
        kept.on(
            domain.Added,
            key=key,
            where=field("amount") != 4,
            total=sum_("amount"),
            times=count(),
            first=first("amount"),
            last=last("amount"),
            smallest=min_("amount"),
            largest=max_("amount"),
        )

    @kept.fold(key=lambda event, context: [context.aggregate_id, "cleared"])
    def cleared(row: Kept | None, event: domain.Cleared, context: Any, key: str) -> Kept | None:
        return Kept(key=key, times=row.times + 1 if row else 1) if key == "cleared" else None

    return kept


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STREAMS, sizes=st.lists(st.integers(1, 9), min_size=40, max_size=40))
def test_declared_columns_hold_what_the_events_of_their_row_hold(
    domain: Any, steps: list[Any], sizes: list[int]
) -> None:
    kept = make_kept(domain)
    streams = [
        domain.stream(key, n, domain.Added(amount=amount) if amount else domain.Cleared())
        for n, (key, amount) in enumerate(steps, start=1)
    ]
    rows: dict[str, Kept] = {}
    rest = list(streams)
    for size in sizes:
        for key, row in fold_streams(kept, rows, rest[:size]).items():
            rows.pop(key, None)
            if row is not None:
                rows[key] = row
        rest = rest[size:]
    amounts: dict[str, list[int]] = {}
    clears = 0
    for n, (key, amount) in enumerate(steps, start=1):
        if amount == 0:
            amounts.pop(key, None)
            clears += 1
        elif amount != 4:
            amounts.setdefault(key, []).append(amount)
            amounts.setdefault(f"{key}-{n}", []).append(amount)
    expected = {
        key: Kept(
            key=key, total=sum(seen), times=len(seen), first=seen[0], last=seen[-1],
            smallest=min(seen), largest=max(seen),
        )
        for key, seen in amounts.items()
    }  # fmt: skip
    if clears:
        expected["cleared"] = Kept(key="cleared", times=clears)
    assert rows == expected
