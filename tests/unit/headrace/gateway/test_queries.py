"""Read models by HTTP: rows, pages, and one's own writes."""

from collections.abc import AsyncIterator
from enum import Enum
from typing import Any
from urllib.parse import quote
from uuid import UUID

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openapi_spec_validator import validate
from pydantic import BaseModel

from headrace import (
    Aggregate,
    AggregateId,
    App,
    Command,
    CommandContext,
    DomainEvent,
    EventContext,
    Projection,
    applies,
)
from headrace.gateway.gateway import Gateway
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


class Size(Enum):
    SMALL = 1
    LARGE = 2


class Put(Command):
    """Puts a thing on a shelf."""

    thing_id: AggregateId
    shelf: str
    number: int
    size: Size = Size.SMALL
    tags: list[str]


class ThingPut(DomainEvent):
    shelf: str
    number: int
    size: Size
    tags: list[str]


class Thing(Aggregate):
    """A thing."""

    @applies
    def _put(self, event: ThingPut) -> None:
        pass


class Placed(BaseModel):
    number: int
    shelf: str
    size: Size | None = None
    tags: list[str] = []
    mark: bytes = b"\xff"
    owner: UUID | None = None


placed = Projection("placed", row=Placed, key=("shelf", "number"))
numbered = Projection("numbered", row=Placed, key="number", key_of="number")


@placed.fold(key=("shelf", "number"))
@numbered.fold
def put(row: Placed | None, event: ThingPut, context: EventContext) -> Placed:
    owner = UUID(int=event.number) if event.number > 0 else None
    return Placed(
        number=event.number,
        shelf=event.shelf,
        size=event.size,
        tags=event.tags,
        mark=bytes([event.number % 256, 255]),
        owner=owner,
    )


@pytest.fixture
async def shelves() -> AsyncIterator[Any]:
    """A client of a gateway with rows of other types and keys."""
    app = App("shelves")
    app.add(Thing, placed, numbered)

    @app.handles
    async def put_thing(command: Put, context: CommandContext) -> None:
        thing = Thing(command.thing_id)
        thing.record(ThingPut(**command.model_dump(exclude={"thing_id"})))
        context.add(thing)

    async with app.run_local() as running:
        for shelf, number, tags in (("a,b%", 7, ["x"]), ("b", -10, []), ("b", 9, ["x"])):
            wanted = Put(
                thing_id=str(number), shelf=shelf, number=number, size=Size.LARGE, tags=tags
            )
            await running.bus.execute(wanted, wait_for=[placed, numbered])
        transport = httpx.ASGITransport(Gateway(app, running))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


SEVEN = {
    "number": 7, "shelf": "a,b%", "size": 2, "tags": ["x"], "mark": "B_8=",
    "owner": "00000000-0000-0000-0000-000000000007",
}  # fmt: skip


@pytest.mark.parametrize(
    "path", ["placed/a%252Cb%2525,7", "placed/a%252Cb%2525%2C+7", "numbered/7", "numbered/007"]
)
async def test_a_row_is_found_by_a_key_of_another_type(shelves: Any, path: str) -> None:
    answer = await shelves.get(f"/projections/{path}")
    assert (answer.status_code, answer.json()) == (200, SEVEN)


@pytest.mark.parametrize(
    "path", ["placed/a", "placed/a,x", "placed/a,b,7", "numbered/x", "numbered/9223372036854775808"]
)
async def test_a_path_that_is_no_key_is_404(shelves: Any, path: str) -> None:
    assert (await shelves.get(f"/projections/{path}")).status_code == 404


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [7, -10, 9]),
        ("size=2&tags=%5B%22x%22%5D", [7, 9]),
        ('tags.ne=["x"]', [-10]),
        ("size=1", []),
        ("size.in=1,2", [7, -10, 9]),
        ("mark=B_8%3D", [7]),
        ("mark.gt=B_8%3D", [-10, 9]),
        ("owner=00000000000000000000000000000007", [7]),
        ("number.le=7&sort=number", [-10, 7]),
        ("sort=mark", [7, 9, -10]),
        ("sort=-owner", [9, 7, -10]),
    ],
)
async def test_rows_of_any_types_are_chosen_and_ordered(
    shelves: Any, query: str, numbers: list[int]
) -> None:
    rows, after = [], ""
    while after is not None:
        more = f"&after={quote(after)}" if after else ""
        page = (await shelves.get(f"/projections/placed?{query}&limit=2{more}")).json()
        rows += page["rows"]
        after = page["after"]
    assert [row["number"] for row in rows] == numbers


@pytest.mark.parametrize(
    "query",
    ["size=3", "size=large", "tags=x", 'tags={"a":1}', "tags.in=[]", "tags.ge=[]", "sort=tags",
     "mark=%25", "owner=7", "after=x"],
)  # fmt: skip
async def test_a_value_of_no_row_is_422(shelves: Any, query: str) -> None:
    assert (await shelves.get(f"/projections/placed?{query}")).status_code == 422


async def test_the_document_says_what_types_rows_and_keys_have(shelves: Any) -> None:
    found = (await shelves.get("/openapi.json")).json()
    validate(found)
    row = found["components"]["schemas"]["Placed"]["properties"]
    assert row["mark"]["format"] == "base64url"
    keys = [
        found["paths"][f"/projections/{name}/{{key}}"]["get"]["parameters"][0]["schema"]
        for name in ("placed", "numbered")
    ]
    assert keys == [{"type": "string"}, {"type": "integer"}]
    many = found["paths"]["/projections/placed"]["get"]["parameters"]
    named = {each["name"]: each["schema"] for each in many if "name" in each}
    assert named["tags"] == {"type": "string", "contentMediaType": "application/json"}
    assert named["size"]["enum"] == [1, 2]
    assert "tags" not in named["sort"]["enum"]
    assert "tags.ge" not in named
