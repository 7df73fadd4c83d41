"""The keys of an issuer: cached, renewed, and never more or older than allowed."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from structlog.testing import capture_logs

from headrace.gateway.access.key_set import (
    AGAIN_MS,
    FRESH_MS,
    KEYS_MAX,
    SET_BYTES_MAX,
    STALE_MS,
    KeySet,
    fetch,
)
from headrace.gateway.access.refusals import KeysAway, TokenRefused
from headrace.testing.history import FakeClock

URL = "https://login.example/keys"
ALGORITHMS = ("RS256", "ES256", "EdDSA")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def keys(issuer: Any, clock: FakeClock) -> KeySet:
    return KeySet(URL, ALGORITHMS, fetched=issuer.fetch, clock=clock)


async def test_many_requests_at_once_fetch_the_keys_once(keys: KeySet, issuer: Any) -> None:
    found = await asyncio.gather(*(keys.find(one) for one in ("rs256", "es256", "eddsa") * 5))
    assert {each.algorithm_name for each in found} == set(ALGORITHMS)
    assert issuer.asked == 1


async def test_a_key_that_is_not_fresh_is_used_and_fetched_again_meanwhile(
    keys: KeySet, issuer: Any, clock: FakeClock
) -> None:
    await keys.find("es256")
    clock.advance(FRESH_MS - 1)
    await keys.find("es256")
    assert issuer.asked == 1
    clock.advance(1)
    del issuer.keys["es256"]
    assert await keys.find("es256")
    assert keys._loading is not None
    await keys._loading
    assert issuer.asked == 2
    with pytest.raises(TokenRefused):
        await keys.find("es256")


async def test_a_new_key_is_found_and_made_up_ids_ask_no_more_than_now_and_then(
    keys: KeySet, issuer: Any, clock: FakeClock
) -> None:
    await keys.find("es256")
    issuer.add("new")
    for _ in range(5):
        with pytest.raises(TokenRefused, match="unknown key"):
            await keys.find("new")
    assert issuer.asked == 1
    clock.advance(AGAIN_MS)
    assert await keys.find("new")
    assert issuer.asked == 2


async def test_the_last_keys_are_good_for_a_limited_time_while_the_issuer_is_away(
    keys: KeySet, issuer: Any, clock: FakeClock
) -> None:
    await keys.find("es256")
    issuer.answer = OSError("no route")
    clock.advance(STALE_MS - 1)
    with capture_logs() as logs:
        assert await keys.find("es256")
        assert keys._loading is not None
        await keys._loading
    assert [line["reason"] for line in logs] == ["no route"]
    clock.advance(AGAIN_MS)
    with pytest.raises(KeysAway):
        await keys.find("es256")
    issuer.answer = None
    with pytest.raises(KeysAway):
        await keys.find("es256")
    clock.advance(AGAIN_MS)
    assert await keys.find("es256")


async def test_without_any_answer_there_are_no_keys_and_the_issuer_is_not_asked_each_time(
    keys: KeySet, issuer: Any
) -> None:
    issuer.answer = ZeroDivisionError("anything")
    for _ in range(5):
        with pytest.raises(KeysAway):
            await keys.find("es256")
    assert issuer.asked == 1


async def test_a_token_without_a_key_id_means_the_only_key(
    keys: KeySet, issuer: Any, clock: FakeClock
) -> None:
    with pytest.raises(TokenRefused):
        await keys.find(None)
    clock.advance(AGAIN_MS)
    issuer.keys = {"es256": issuer.keys["es256"]}
    assert (await keys.find(None)).algorithm_name == "ES256"


async def test_secrets_short_keys_and_keys_for_other_things_are_passed_over(
    keys: KeySet, issuer: Any
) -> None:
    short = json.loads(RSAAlgorithm.to_jwk(rsa.generate_private_key(65_537, 1_024).public_key()))
    private = json.loads(RSAAlgorithm.to_jwk(issuer.keys["rs256"][1]))
    good = issuer.published("es256")
    issuer.answer = json.dumps(
        {
            "keys": [
                {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256"},
                {**short, "kid": "short"},
                {**private, "kid": "private"},
                {**issuer.published("rs256"), "kid": "sealing", "use": "enc"},
                {**issuer.published("rs256"), "kid": "other", "alg": "RS512"},
                {"kty": "new", "kid": "new"},
                {"kid": "none"},
                good,
            ]
        }
    ).encode()
    assert await keys.find("es256")
    assert list(keys._keys) == ["es256"]


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"<html>", b'{"keys": 1}', b'{"keys": []}', b'{"keys": [{"kty": "oct", "k": "x"}]}',
     b'{"keys":[' + b",".join([b"{}"] * (KEYS_MAX + 1)) + b"]}", b"[" * 100_000],
)  # fmt: skip
async def test_an_answer_that_is_no_set_of_keys_is_none(
    keys: KeySet, issuer: Any, answer: bytes
) -> None:
    issuer.answer = answer
    with pytest.raises(KeysAway):
        await keys.find("es256")


async def test_a_question_that_is_under_way_ends_with_the_gateway(
    issuer: Any, clock: FakeClock
) -> None:
    keys = KeySet(URL, ALGORITHMS, fetched=issuer.fetch, clock=clock)
    keys.stop()
    asked = asyncio.create_task(keys.find("es256"))
    while keys._loading is None:
        await asyncio.sleep(0)
    keys.stop()
    with pytest.raises(asyncio.CancelledError):
        await asked


@contextmanager
def answers(status: int, body: bytes, **headers: str) -> Iterator[str]:
    """A server on this machine that always answers the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/keys"
        server.shutdown()
        thread.join()


def test_the_bytes_at_an_address_are_fetched_up_to_a_limit() -> None:
    with answers(200, b"x" * SET_BYTES_MAX) as url:
        assert len(fetch(url)) == SET_BYTES_MAX
    with (
        answers(200, b"x" * (SET_BYTES_MAX + 1)) as url,
        pytest.raises(ValueError, match=f"more than {SET_BYTES_MAX} bytes"),
    ):
        fetch(url)


def test_neither_a_redirect_nor_an_error_is_an_answer() -> None:
    with answers(200, b"other") as other:
        for status in (301, 302, 307, 404, 500):
            with (
                answers(status, b"", Location=other) as url,
                pytest.raises(OSError, match=str(status)),
            ):
                fetch(url)
