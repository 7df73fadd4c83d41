"""A rebuild and a verification through real Spark, from a real event store, on both databases."""

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.projections.definition.fold import fold_streams
from headrace.rebuild.promotion import promote
from headrace.spark.rebuild import rebuild
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

APP = "ledger_app:app"


@pytest.fixture
async def event_store(read_models_url: str, ledger: Any, tmp_path: Path) -> Any:
    """A file, or the PostgreSQL database of the read models; and its URL."""
    postgres = read_models_url.startswith("postgresql")
    url = read_models_url if postgres else f"sqlite:///{tmp_path / 'events.db'}"
    await upgrade(url)
    store = await open_event_store(url, ledger.app.serializer)
    store.url = url  # type: ignore[attr-defined]  # beside it
    yield store
    await store.aclose()


def events(streams: Any) -> list[Any]:
    """Without rejections, all of which have one command's id."""
    return [each for each in streams if each.version is not None]


def folded(projection: Any, streams: Any) -> dict[str, Any]:
    made = fold_streams(projection, {}, streams)
    return {key: row for key, row in made.items() if row is not None}


@pytest.mark.parametrize(
    ("read_models_url", "name"),
    [("sqlite", "accounts"), ("postgresql", "accounts"), ("postgresql", "partners")],
    indirect=["read_models_url"],
)
async def test_a_rebuild_from_the_store_equals_live_and_continues_with_the_topic(
    rows_of: Any, name: str, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, read_models_url: str, event_store: Any,
) -> None:  # fmt: skip
    projection = ledger.app.projections[name]
    history = events(make_history(40, 12))
    await event_store.append(history)
    await publish(history)
    await catch_up_live(read_models_url, projection)
    choices: Any = {
        "read_models_url": read_models_url, "event_store_url": event_store.url, "spark": spark,
        "source": "store",
    }  # fmt: skip
    proof = await rebuild(APP, name, broker=None, switch=False, **choices)
    assert (proof.proven, proof.mismatches) == (True, 0)
    report = await rebuild(APP, name, broker=broker.address, **choices)
    wanted = folded(projection, history)
    assert (report.switched, report.compared, report.mismatches) == (True, len(wanted), 0)
    assert report.events == sum(len(one.events) for one in history)
    assert await rows_of(read_models_url, projection) == wanted
    late = events(make_history(40, 2, first=13, seed=5))
    await event_store.append(late)
    await publish([*history[-20:], *late])
    await catch_up_live(read_models_url, projection)
    assert await rows_of(read_models_url, projection) == folded(projection, [*history, *late])


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_a_spark_table_with_differences_is_switched_to_later(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, make_history: Any, publish: Any,
    catch_up_live: Any, read_models_url: str, event_store: Any,
) -> None:  # fmt: skip
    history = events(make_history(9, 3))
    await event_store.append(history[:-2])
    await publish(history)
    await catch_up_live(read_models_url, ledger.accounts)
    urls: Any = {"read_models_url": read_models_url, "event_store_url": event_store.url}
    kept = await rebuild(
        APP, "accounts", broker=broker.address, spark=spark, source="store", **urls
    )
    # The live rows have what this store has not.
    assert (kept.switched, kept.ahead > 0) == (False, True)
    assert "another store, or an older copy" in kept.reason
    await event_store.append(history[-2:])
    done = await promote(APP, "accounts", broker=broker.address, **urls)
    assert (done.switched, done.generation) == (True, kept.generation)
    assert await rows_of(read_models_url, ledger.accounts) == folded(ledger.accounts, history)


@pytest.mark.parametrize("read_models_url", ["postgresql"], indirect=True)
async def test_a_store_that_spark_cannot_reach_ends_with_a_sentence(
    spark: Any, broker: Any, ledger: Any, read_models_url: str, event_store: Any
) -> None:
    away = "postgresql://postgres@127.0.0.1:1/postgres"
    with pytest.raises((ProjectionError, OSError)):
        await rebuild(
            APP, "accounts", broker=broker.address, read_models_url=read_models_url,
            event_store_url=away, spark=spark, source="store",
        )  # fmt: skip
