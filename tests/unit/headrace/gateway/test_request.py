"""What a request says: every malformed part has an answer of its own."""

import asyncio
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers, QueryParams
from starlette.requests import Request

from headrace.gateway import request as reading
from headrace.gateway.problems import Problem

JSON = {"content-type": "application/json"}


def request(parts: Iterable[bytes], headers: dict[str, str]) -> Request:
    waiting = list(parts)

    async def receive() -> dict[str, Any]:
        if not waiting:
            await asyncio.Event().wait()  # a client that stopped in the middle
        body = waiting.pop(0)
        return {"type": "http.request", "body": body, "more_body": body != b""}

    scope = {"type": "http", "method": "POST", "headers": Headers(headers).raw}
    return Request(scope, receive)


async def read(body: bytes, headers: dict[str, str] = JSON, *, bytes_max: int = 1_000) -> Any:
    parts = request([body, b""], headers)
    return await reading.json_object(parts, bytes_max=bytes_max, within_ms=10_000)


async def refused(body: bytes, headers: dict[str, str] = JSON, **limits: int) -> Problem:
    with pytest.raises(Problem) as caught:
        await read(body, headers, **limits)
    return caught.value


@pytest.mark.parametrize(
    "media_type", ["application/json", "Application/JSON; charset=utf-8", "application/a+json"]
)
async def test_an_object_in_json_is_read(media_type: str) -> None:
    assert await read(b'{"a": 1}', {"content-type": media_type}) == {"a": 1}


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded"])
async def test_another_media_type_is_415(media_type: str) -> None:
    assert (await refused(b"{}", {"content-type": media_type})).status == 415


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "byte 0"),
        (b'{"a":', "byte 5"),
        (b'{"a": #}', "byte 6"),
        (b"[1]", "JSON object"),
        (b"7", "JSON object"),
        (b'{"a": NaN}', "byte 6"),
        (b'{"a": "\xff"}', "not UTF-8 (byte 7)"),
        (b'{"a": "\\ud800"}', "no JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 5_000 + b"}", "out of range"),
    ],
)
async def test_a_body_that_is_no_json_object_is_400_with_the_position(
    body: bytes, sentence: str
) -> None:
    problem = await refused(body, bytes_max=1_000_000)
    assert problem.status == 400
    assert sentence in problem.body["detail"]


async def test_a_body_of_the_limit_is_read_and_a_byte_more_is_413() -> None:
    assert await read(b'{"a":123}', bytes_max=9) == {"a": 123}
    problem = await refused(b'{"a":1234}', bytes_max=9)
    assert (problem.status, problem.body["body_bytes_max"]) == (413, 9)


async def test_a_declared_length_beyond_the_limit_is_413_before_anything_is_read() -> None:
    nothing_sent = request([], JSON | {"content-length": "10"})
    with pytest.raises(Problem, match="body_bytes_max"):
        await reading.json_object(nothing_sent, bytes_max=9, within_ms=60_000)


async def test_a_body_that_does_not_arrive_is_408() -> None:
    with pytest.raises(Problem) as caught:
        await reading.json_object(request([b'{"a"'], JSON), bytes_max=9, within_ms=1)
    assert caught.value.status == 408


@pytest.mark.parametrize(
    ("prefer", "wait_ms", "respond_async"),
    [
        ("wait=5", 5_000, False),
        ('respond-async, wait="2"', 2_000, True),
        ("Respond-Async", None, True),
        ("wait=soon, handling=strict, ,", None, False),
    ],
)
def test_preferences_are_understood_or_ignored(
    prefer: str, wait_ms: int | None, respond_async: bool
) -> None:
    found = reading.preference(Headers({"prefer": prefer}))
    assert (found.wait_ms, found.respond_async) == (wait_ms, respond_async)


@pytest.mark.parametrize(("text", "key"), [("k-1", "k-1"), ('"k-1"', "k-1"), ('"', '"')])
def test_a_key_may_stand_in_quotes(text: str, key: str) -> None:
    assert reading.command_key(Headers({"idempotency-key": text})) == key


@pytest.mark.parametrize("keys", [[""], ['""'], ["x" * 256], ["a\tb"], ["é"], ["a", "b"]])
def test_an_unusable_key_is_400(keys: list[str]) -> None:
    headers = Headers(raw=[(b"idempotency-key", key.encode("latin-1")) for key in keys])
    with pytest.raises(Problem) as caught:
        reading.command_key(headers)
    assert caught.value.status == 400


def test_a_name_that_stands_twice_in_the_query_is_422() -> None:
    with pytest.raises(Problem, match="twice"):
        reading.single_values(QueryParams("a=1&b=2&a=3"))


@given(st.text(max_size=30) | st.integers(-5, 15).map(str))
def test_an_integer_is_within_its_bounds_or_422(text: str) -> None:
    if re.fullmatch(r"0*[1-9]", text, re.ASCII) and len(text) <= 18:
        assert reading.integer({"n": text}, "n", least=1, most=9, default=None) == int(text)
    else:
        with pytest.raises(Problem) as caught:
            reading.integer({"n": text}, "n", least=1, most=9, default=None)
        assert caught.value.status == 422


def test_values_that_no_table_can_hold_are_found_wherever_they_stand() -> None:
    fields = {"a": 2**63 - 1, "b": [1, {"c": 2**63}], "d": "x\x00y", "e": -(2**63) + 1, "f": True}
    assert {one["field"] for one in reading.unstorable(fields)} == {"b.1.c", "d"}


NAMES = ["localhost", "*.localhost", "api.example.com", "*.shop.example"]


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "bank.localhost", "127.0.0.1:80", "10.1.2.3", "[::1]:8080", "[fd00::7]",
     "api.example.com.", "eu.api.shop.example:443"],
)  # fmt: skip
def test_a_host_that_is_the_gateways_is_taken(host: str) -> None:
    reading.check_host(Headers({"host": host}), NAMES)


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "notlocalhost", "shop.example", "",
     "a@localhost@evil.example", "[::1", "2130706433", "%31%32%37.0.0.1"],
)  # fmt: skip
def test_a_host_that_is_not_the_gateways_is_421(host: str) -> None:
    with pytest.raises(Problem, match="not addressed as") as caught:
        reading.check_host(Headers({"host": host}), NAMES)
    assert caught.value.status == 421


def test_two_hosts_are_421_and_none_or_any_are_taken() -> None:
    two = Headers(raw=[(b"host", b"localhost"), (b"host", b"localhost")])
    with pytest.raises(Problem):
        reading.check_host(two, NAMES)
    reading.check_host(Headers({}), NAMES)
    reading.check_host(Headers({"host": "evil.example"}), ["*"])


def test_two_lengths_are_400_and_one_is_none_of_its_business() -> None:
    with pytest.raises(Problem, match="not both") as caught:
        reading.check_framing(Headers({"transfer-encoding": "chunked", "content-length": "1"}))
    assert caught.value.status == 400
    reading.check_framing(Headers({"content-length": "1"}))
    reading.check_framing(Headers({"transfer-encoding": "chunked"}))
