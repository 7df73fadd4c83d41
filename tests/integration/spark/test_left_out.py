"""An aggregate with a stream that does not decode is left out by Spark from there on, and no other."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headrace.projections.definition.fold import fold_streams
from headrace.spark.driver import all_rows
from headrace.spark.driver import fold as fold_module
from headrace.spark.rebuild import rebuild
from headrace.stores.database.schema import upgrade
from headrace.stores.open import open_event_store
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

APP = "ledger_app:app"


@pytest.fixture
def streams(ledger: Any, make_stream: Any) -> list[Any]:
    return [
        make_stream(key, version, ledger.Booked(partner=key, amount=version))
        for version in (1, 2, 3)
        for key in ("a0", "b0")
    ]


def is_whole(stream: Any) -> bool:
    return stream.aggregate_id != "a0" or stream.version < 2


async def test_a_rebuild_from_the_topic_leaves_out_a_damaged_event(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, publish: Any, streams: list[Any],
    read_models_url: str,
) -> None:  # fmt: skip
    await upgrade(read_models_url)
    await publish(streams[:2])
    spoiled = ledger.app.serializer.encode_stream(streams[2]).replace(b'"amount"', b'"lost"')
    async with Producer(broker.address) as producer:
        headers = {"kind": "events"}
        message = Message(topic="ledger.events", key="a0", headers=headers, body=spoiled)
        await producer.send(message)
    await publish(streams[3:])
    for name in ("accounts", "partners"):
        report = await rebuild(
            APP, name, broker=broker.address, read_models_url=read_models_url, spark=spark,
            verify=False,
        )  # fmt: skip
        assert (report.switched, report.events, report.gaps) == (True, 4, 0)
        (sentence,) = report.left_out
        assert "does not decode" in sentence
        projection = getattr(ledger, name)
        whole = [each for each in streams if is_whole(each)]
        found = await rows_of(read_models_url, projection)
        assert found == fold_streams(projection, {}, whole)


async def test_a_projection_that_runs_as_a_query_is_then_folded_in_python(
    rows_of: Any, spark: Any, broker: Any, declared: Any, make_stream: Any, read_models_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(all_rows, "_NATIVE_MESSAGES_MIN", 0)
    await upgrade(read_models_url)
    moved = [
        make_stream(key, version, declared.Moved(source="s", target="t", amount=version))
        for version in (1, 2, 3)
        for key in ("a0", "b0")
    ]
    encode = declared.app.serializer.encode_stream
    async with Producer(broker.address) as producer:
        await producer.create_topic("ledger.events", queues=2, retention="forever")
        for each in moved:
            body = encode(each)
            if (each.aggregate_id, each.version) == ("a0", 2):
                body = body.replace(b'"target"', b'"lost"')
            message = Message(
                topic="ledger.events", key=each.aggregate_id, headers={"kind": "events"}, body=body
            )
            await producer.send(message)
    natives: list[Any] = []
    run_fold = fold_module.run_fold

    def watched(*arguments: Any, **named: Any) -> Any:
        natives.append(named["native"])
        return run_fold(*arguments, **named)

    monkeypatch.setattr(fold_module, "run_fold", watched)
    report = await rebuild(
        "declared_app:app", "partners", broker=broker.address, read_models_url=read_models_url,
        spark=spark, verify=False,
    )  # fmt: skip
    assert [each is None for each in natives] == [False, True]
    assert (report.switched, report.events, len(report.left_out)) == (True, 4, 1)
    projection = declared.app.projections["partners"]
    whole = [each for each in moved if is_whole(each)]
    assert await rows_of(read_models_url, projection) == fold_streams(projection, {}, whole)


async def test_a_rebuild_from_the_store_leaves_out_a_damaged_stream(
    rows_of: Any, spark: Any, broker: Any, ledger: Any, publish: Any, streams: list[Any],
    sqlite_url: str, tmp_path: Path,
) -> None:  # fmt: skip
    file = tmp_path / "events.db"
    store = await open_event_store(f"sqlite:///{file}", ledger.app.serializer)
    await store.append(streams)
    await store.aclose()
    await publish(streams)
    with sqlite3.connect(file) as connection:
        connection.execute(
            "UPDATE event_streams SET body = replace(body, '\"amount\"', '\"lost\"'), checksum = NULL"
            " WHERE aggregate_id = 'a0' AND version = 2"
        )
    connection.close()
    report = await rebuild(
        APP, "accounts", broker=broker.address, read_models_url=sqlite_url, spark=spark,
        event_store_url=f"sqlite:///{file}", source="store", verify=False,
    )  # fmt: skip
    assert report.switched
    (sentence,) = report.left_out
    assert "does not decode" in sentence
    whole = [each for each in streams if is_whole(each)]
    assert await rows_of(sqlite_url, ledger.accounts) == fold_streams(ledger.accounts, {}, whole)
