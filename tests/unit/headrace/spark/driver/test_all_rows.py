"""All rows folded: in Python or as a query, from zero or onto live rows."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.spark.driver import all_rows
from headrace.spark.driver import fold as fold_module
from headrace.spark.driver import work as work_module
from headrace.spark.rebuild import rebuild


async def test_a_few_events_move_no_row_through_spark(
    ledger: Any, live: Any, topic: Any, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rebuild(
        ledger.path,
        "accounts",
        broker=live.broker,
        read_models_url=live.url,
        spark=spark,
        verify=False,
    )

    def moved(*_of: object) -> None:
        raise AssertionError("no frame is needed")

    for name in ("range", "createDataFrame"):
        monkeypatch.setattr(type(spark), name, moved)
    topic.publish(
        ledger.stream("b", 2, ledger.Booked(partner="p", amount=10)),
        ledger.stream("c", 1, ledger.Booked(partner="p", amount=100)),
    )
    phases: list[tuple[str, int]] = []
    report = await rebuild(
        ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark,
        start="offsets", verify=False, report=lambda *of: phases.append(of),
    )  # fmt: skip
    assert (report.start, report.events, report.rows, report.switched) == ("offsets", 2, 3, True)
    assert ("fold", 2) in phases
    rows = [row async for row in live.read_models.reader(ledger.accounts, generation=3).rows()]
    assert sorted((row.account_id, row.balance) for row in rows) == [
        ("a", 4),
        ("b", 13),
        ("c", 100),
    ]


async def test_an_increment_that_fails_leaves_nothing_behind(
    ledger: Any, live: Any, topic: Any, spark: Any
) -> None:
    await rebuild(
        ledger.path,
        "accounts",
        broker=live.broker,
        read_models_url=live.url,
        spark=spark,
        verify=False,
    )
    topic.publish(ledger.stream("b", 4, ledger.Booked(partner="p", amount=10)))
    with pytest.raises(ProjectionError, match="versions 2 to 3 of aggregate b"):
        await rebuild(
            ledger.path, "accounts", broker=live.broker, read_models_url=live.url, spark=spark,
            start="offsets", verify=False,
        )  # fmt: skip
    assert (await live.read_models.state("accounts")).rebuild_generation is None


@pytest.mark.parametrize(
    ("name", "least", "used"),
    [("partners", 4, True), ("partners", 5, False), ("accounts", 4, False)],
)
async def test_only_many_messages_for_rows_of_any_key_are_worth_a_query(
    ledger: Any, live: Any, spark: Any, monkeypatch: Any, name: str, least: int, used: bool
) -> None:
    as_sql = SimpleNamespace(files=None)
    given: list[object] = []
    run_fold = fold_module.run_fold

    def watched(*arguments: Any, native: Any, **named: Any) -> Any:
        given.append(native)
        return run_fold(*arguments, **named)

    monkeypatch.setattr(work_module, "plan_native", lambda *of: as_sql)
    monkeypatch.setattr(fold_module, "run_fold", watched)
    monkeypatch.setattr(all_rows, "_NATIVE_MESSAGES_MIN", least)
    await rebuild(
        ledger.path, name, broker=live.broker, read_models_url=live.url, spark=spark, verify=False
    )
    assert given == [as_sql if used else None]
