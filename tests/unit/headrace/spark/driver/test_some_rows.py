"""Some rows folded from their first event on, among live ones."""

from typing import Any

import pytest

from headrace.errors import ProjectionError
from headrace.rebuild.local.partial_rebuild import Wanted
from headrace.spark.rebuild import rebuild


@pytest.mark.parametrize(("name", "key"), [("accounts", "a"), ("partners", "p")])
async def test_rows_of_keys_are_folded_anew_among_live_ones(
    name: str, key: str, ledger: Any, live: Any, spark: Any, topic: Any
) -> None:
    projection = ledger.app.projection(name)
    given: dict[str, Any] = {"broker": live.broker, "read_models_url": live.url, "spark": spark}
    topic.publish(ledger.stream("c", 1, ledger.Booked(partner="q", amount=5)))
    assert (await rebuild(ledger.path, name, verify=False, **given)).switched
    table = live.read_models.table_for(projection, 2)
    async with live.read_models.begin() as connection:
        damaged = {field: -1 for field in ("balance", "total") if field in table.c}
        await connection.execute(table.update().values(damaged))
    topic.publish(ledger.stream("d", 1, ledger.Booked(partner="q", amount=5)))
    report = await rebuild(
        ledger.path, name, wanted=Wanted(keys=frozenset({key, "nobody"})), **given
    )
    assert (report.switched, report.start, report.keys, report.mended) == (True, "keys", 2, 1)
    assert (report.mismatches, report.rows, report.caught_up) == (0, 1, 0)
    whole = await rebuild(ledger.path, name, verify=True, switch=False, live_wait_ms=0, **given)
    assert "the live generation is behind the rebuilt one" in whole.reason
    rows = live.read_models.reader(projection).rows()
    found = {getattr(row, projection.key): row async for row in rows}
    rows = live.read_models.reader(projection, generation=whole.generation).rows()
    right = {getattr(row, projection.key): row async for row in rows}
    assert found[key] == right[key]
    assert found.keys() | {"d"} == right.keys() | {"d"}
    assert all(found[other] != right[other] for other in found.keys() - {key})


async def test_the_row_of_a_stream_that_does_not_decode_stays_and_others_are_folded_anew(
    ledger: Any, live: Any, spark: Any, topic: Any
) -> None:
    given: dict[str, Any] = {"broker": live.broker, "read_models_url": live.url, "spark": spark}
    for name in ("accounts", "partners"):
        assert (await rebuild(ledger.path, name, verify=False, **given)).switched
    table = live.read_models.table_for(ledger.accounts, 2)
    async with live.read_models.begin() as connection:
        await connection.execute(table.update().values(balance=-1))
    for messages in topic.bodies.values():
        for place, (key, headers, body) in enumerate(messages):
            if key == "a" and b'"version":2' in body:
                messages[place] = (key, headers, body.replace(b'"amount"', b'"lost"'))
    report = await rebuild(ledger.path, "accounts", wanted=Wanted(keys=frozenset("ab")), **given)
    assert (report.switched, report.mended) == (True, 1)
    (sentence,) = report.left_out
    assert "(aggregate a) does not decode" in sentence
    rows = live.read_models.reader(ledger.accounts).rows()
    assert {row.account_id: row.balance async for row in rows} == {"a": -1, "b": 1}
    with pytest.raises(ProjectionError, match=r"nothing tells .* \(aggregate a\) does not"):
        await rebuild(ledger.path, "partners", wanted=Wanted(keys=frozenset("p")), **given)
