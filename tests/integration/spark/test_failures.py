"""A broker or a database that goes away in the middle: live stays right, and it can be run again."""

from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from headrace.spark.driver import load as loading
from headrace.spark.rebuild import rebuild
from headrace.spark.stream import continuous, sink
from headrace.spark.stream.continuous import follow
from headrace.stores.database.schema import upgrade

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def upgraded_through(relay_to: Any, url: str) -> tuple[Any, str]:
    """Returns a relay to a new PostgreSQL database, and its URL through the relay."""
    await upgrade(url)
    parsed = make_url(url)
    relay = relay_to(f"{parsed.query['host']}/.s.PGSQL.5432")
    through = parsed.set(host="127.0.0.1", port=relay.port, query={})
    return relay, through.render_as_string(hide_password=False)


async def test_a_broker_that_goes_away_during_the_fold_is_asked_again(
    spark: Any, broker: Any, relay_to: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, sqlite_url: str,
) -> None:  # fmt: skip
    await publish(make_history(9, 3))
    await catch_up_live(sqlite_url, ledger.accounts)
    relay = relay_to(broker.address)

    def report(phase: str, ahead: int) -> None:
        if phase == "fold":
            relay.cut(3)

    report_of = await rebuild(
        "ledger_app:app", "accounts", broker=relay.address, read_models_url=sqlite_url,
        spark=spark, report=report,
    )  # fmt: skip
    assert relay.refused == 3
    assert (report_of.switched, report_of.mismatches) == (True, 0)


async def test_a_database_that_goes_away_in_the_middle_leaves_live_as_it_was(
    rows_of: Any, state_of: Any, spark: Any, broker: Any, relay_to: Any, ledger: Any,
    make_history: Any, publish: Any, catch_up_live: Any, postgres_database: str, monkeypatch:
    pytest.MonkeyPatch,
) -> None:  # fmt: skip
    relay, url = await upgraded_through(relay_to, postgres_database)
    await publish(make_history(9, 3))
    await catch_up_live(url, ledger.accounts)
    live = await rows_of(url, ledger.accounts)
    write_offsets, store_offsets = loading.write_offsets, sink.store_offsets

    async def cut_and_write(*given: Any) -> None:
        relay.cut(2)
        await write_offsets(*given)

    monkeypatch.setattr(loading, "write_offsets", cut_and_write)
    with pytest.raises((SQLAlchemyError, OSError)):
        await rebuild(
            "ledger_app:app", "accounts", broker=broker.address, read_models_url=url, spark=spark
        )
    assert await rows_of(postgres_database, ledger.accounts) == live
    assert (await state_of(postgres_database, ledger.accounts)).generation == 1
    relay.cut(0)
    monkeypatch.setattr(loading, "write_offsets", write_offsets)
    report = await rebuild(
        "ledger_app:app", "accounts", broker=broker.address, read_models_url=url, spark=spark,
        take_over=True,
    )  # fmt: skip
    assert (report.switched, report.mismatches) == (True, 0)

    # The same while a streaming job stores what executors have folded.
    later = make_history(9, 3, first=4, seed=8)
    await publish(later)
    cuts = [2]

    def cut_and_store(*given: Any) -> None:
        if cuts:
            relay.cut(cuts.pop())
        store_offsets(*given)

    monkeypatch.setattr(continuous, "HERE_MAX", 0)
    monkeypatch.setattr(sink, "store_offsets", cut_and_store)
    done = await follow(
        "ledger_app:app", "accounts", broker=broker.address, read_models_url=url, spark=spark,
        available_now=True,
    )  # fmt: skip
    assert (cuts, done.messages) == ([], len(later))
    await catch_up_live(postgres_database, ledger.accounts)
    whole = await rebuild(
        "ledger_app:app", "accounts", broker=broker.address, read_models_url=url, spark=spark
    )
    assert (whole.switched, whole.mismatches) == (True, 0)
