"""Read models by HTTP: rows, pages, and one's own writes."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.gateway.settings import GatewaySettings


async def open_accounts(client: Any, *names: str) -> None:
    for name in names:
        body = {"account_id": name, "owner": name[0]}
        assert (await client.post("/commands/OpenAccount", json=body)).status_code == 200
        assert (await client.get(f"/projections/balances?seen={name}@1")).status_code == 200


async def test_a_row_is_found_by_its_key_once_it_was_seen(http: Any) -> None:
    client = http()
    await client.post("/commands/OpenAccount", json={"account_id": "ada", "owner": "Ada"})
    answer = await client.get("/projections/balances/ada?seen=ada@1")
    assert answer.status_code == 200
    assert answer.json() == {
        "account_id": "ada", "owner": "Ada", "balance": 0, "transactions": 0, "closed": False,
    }  # fmt: skip


@pytest.mark.parametrize("key", ["a/b", "a b", "ä@1", "100%"])
async def test_a_key_may_hold_any_character(http: Any, key: str) -> None:
    client = http()
    await client.post("/commands/OpenAccount", json={"account_id": key, "owner": "x"})
    quoted = "".join(f"%{byte:02X}" for byte in key.encode())
    answer = await client.get(f"/projections/balances/{quoted}?seen={quoted}@1")
    assert answer.json()["account_id"] == key


@pytest.mark.parametrize("path", ["/projections/balances/no%00body", "/projections/balances/x", "/projections/nothing/x", "/projections/nothing"])  # fmt: skip
async def test_a_missing_row_or_projection_is_404(http: Any, path: str) -> None:
    answer = await http().get(path)
    assert (answer.status_code, answer.json()["status"]) == (404, 404)


async def test_pages_follow_each_other_in_key_order(http: Any) -> None:
    client = http()
    await open_accounts(client, "b1", "a2", "a1", "a3")
    first = (await client.get("/projections/balances?owner=a&limit=2")).json()
    assert [row["account_id"] for row in first["rows"]] == ["a1", "a2"]
    rest = (
        await client.get(f"/projections/balances?owner=a&limit=2&after={first['after']}")
    ).json()
    assert ([row["account_id"] for row in rest["rows"]], rest["after"]) == (["a3"], None)


async def test_a_page_has_as_many_rows_as_the_settings_say(http: Any) -> None:
    client = http(GatewaySettings(page_rows=1, page_rows_max=2))
    await open_accounts(client, "a", "b", "c")
    assert len((await client.get("/projections/balances")).json()["rows"]) == 1
    assert len((await client.get("/projections/balances?limit=2")).json()["rows"]) == 2
    assert (await client.get("/projections/balances?limit=3")).status_code == 422


@pytest.mark.parametrize(
    ("query", "field"),
    [("colour=red", "colour"), ("balance=much", "balance"), ("balance=9223372036854775808", "balance"),
     ("limit=0", "limit"), ("after=%00", "after"), ("seen=ada", "seen"), ("seen=ada@0", "seen"),
     ("seen=@1", "seen"), ("wait_ms=x", "wait_ms"), ("owner=%00", "owner")],
)  # fmt: skip
async def test_a_query_that_cannot_be_is_422_by_field(http: Any, query: str, field: str) -> None:
    answer = await http().get(f"/projections/balances?{query}")
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_row_takes_no_filter(http: Any) -> None:
    assert (await http().get("/projections/balances/ada?owner=x")).status_code == 422


async def test_a_version_not_seen_in_time_is_504(http: Any) -> None:
    answer = await http().get("/projections/balances/ada?seen=ada@7&wait_ms=1")
    assert (answer.status_code, answer.headers["retry-after"]) == (504, "1")
    assert "version 7 of ada" in answer.json()["detail"]


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    query=st.dictionaries(
        st.sampled_from(["limit", "after", "wait_ms", "owner", "balance", "closed", "account_id"])
        | st.text(max_size=5),
        st.text(max_size=20) | st.integers().map(str),
        max_size=4,
    )
)
async def test_no_query_is_ever_a_500(http: Any, query: dict[str, str]) -> None:
    assert (await http().get("/projections/balances", params=query)).status_code < 500


async def test_pages_follow_each_other_in_the_order_of_a_field(http: Any) -> None:
    client = http()
    await open_accounts(client, "a", "b", "c", "d")
    for name, amount in (("a", 5), ("b", 7), ("c", 5)):
        body = {"account_id": name, "transaction_id": name, "amount": amount}
        assert (await client.post("/commands/Deposit", json=body)).status_code == 200
        await client.get(f"/projections/balances/{name}?seen={name}@2")
    found: list[str] = []
    query = {"sort": "-balance", "limit": "2", "balance.gt": "0"}
    while True:
        page = (await client.get("/projections/balances", params=query)).json()
        found += [row["account_id"] for row in page["rows"]]
        if page["after"] is None:
            break
        query["after"] = page["after"]
    assert found == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("query", "sentence"),
    [("sort=nothing", "no field 'nothing' to order by"), ("sort=balance&after=ada", "after is what the page"),
     ("balance.like=1", "no such field"), ("closed.gt=true", "nothing is greater or less than True"),
     ("balance.ge=x", "valid integer")],
)  # fmt: skip
async def test_an_order_or_condition_that_cannot_be_is_422(
    http: Any, query: str, sentence: str
) -> None:
    answer = await http().get(f"/projections/balances?{query}")
    assert answer.status_code == 422
    assert sentence in answer.json()["errors"][0]["sentence"]


async def test_an_answer_that_is_known_has_no_body_until_the_row_changes(http: Any) -> None:
    client = http()
    await open_accounts(client, "ada")
    for path in ("/projections/balances/ada", "/projections/balances"):
        first = await client.get(path)
        tag = first.headers["etag"]
        for named in (tag, f'"x", W/{tag}', "*"):
            known = await client.get(path, headers={"If-None-Match": named})
            assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
        other = await client.get(path, headers={"If-None-Match": '"x"'})
        assert (other.status_code, other.content) == (200, first.content)
    body = {"account_id": "ada", "transaction_id": "t", "amount": 1}
    assert (await client.post("/commands/Deposit", json=body)).status_code == 200
    changed = await client.get(f"{path}?seen=ada@2", headers={"If-None-Match": tag})
    assert (changed.status_code, changed.headers["etag"] == tag) == (200, False)
