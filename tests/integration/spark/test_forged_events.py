"""Events that the event store does not know reach no row, by no way through Spark."""

from pathlib import Path
from typing import Any

import pytest

from headrace.spark.rebuild import rebuild
from headrace.spark.stream.continuous import follow
from headrace.stores.open import open_event_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

APP = "ledger_app:app"


async def test_events_unknown_to_the_event_store_are_in_no_row(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, publish: Any, sqlite_url: str,
    make_stream: Any, tmp_path: Path,
) -> None:  # fmt: skip
    streams = [
        make_stream("a0", version, ledger.Booked(partner="p", amount=version))
        for version in range(1, 4)
    ]
    store_url = f"sqlite:///{tmp_path / 'events.db'}"
    store = await open_event_store(store_url, ledger.app.serializer)
    await store.append(streams)
    await store.aclose()
    forged = [
        make_stream("a0", 3, ledger.Booked(partner="p", amount=1_000_000)),
        make_stream("nobody's", 1, ledger.Booked(partner="thief", amount=1_000_000)),
    ]
    await publish([*streams[:2], *forged, streams[2]])
    for name in ("accounts", "partners"):
        report = await rebuild(
            APP, name, broker=broker.address, read_models_url=sqlite_url, spark=spark,
            event_store_url=store_url, verify=False,
        )  # fmt: skip
        assert (report.events, report.foreign, report.gaps) == (3, 2, 0)
    assert set(await rows_of(sqlite_url, ledger.accounts)) == {"a0"}
    partners = await rows_of(sqlite_url, ledger.partners)
    assert {key: row.total for key, row in partners.items()} == {"p": 6}
    later = make_stream("a0", 4, ledger.Booked(partner="p", amount=4))
    store = await open_event_store(store_url, ledger.app.serializer)
    await store.append([later])
    await store.aclose()
    await publish([make_stream("a0", 4, ledger.Booked(partner="p", amount=1_000_000)), later])
    await follow(
        APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        event_store_url=store_url, available_now=True,
    )  # fmt: skip
    # Each booking trebles what was there before.
    assert (await rows_of(sqlite_url, ledger.accounts))["a0"].balance == (
        (1 * 3 + 2) * 3 + 3
    ) * 3 + 4
