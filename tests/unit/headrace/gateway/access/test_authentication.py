"""From a header to a principal: one answer for every token that is not valid."""

import sys
from typing import Any

import pytest
from starlette.datastructures import Headers

from headrace.access.principal import Principal
from headrace.errors import ExtraMissing
from headrace.gateway.access import key_set
from headrace.gateway.access.authentication import TOKEN_BYTES_MAX, Authentication
from headrace.gateway.access.refusals import TokenRefused
from headrace.gateway.settings import GatewaySettings


@pytest.fixture
def authentication(clients: Any) -> Authentication:
    return Authentication(GatewaySettings(tokens=clients.path), "bank")


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer  ", "BEARER "])
async def test_a_known_token_is_its_principal(
    authentication: Authentication, clients: Any, scheme: str
) -> None:
    headers = Headers({"authorization": f"{scheme}{clients.tokens['ann']}"})
    assert await authentication.find(headers) == Principal("ann", frozenset({"clerk"}))


@pytest.mark.parametrize(
    "sent",
    ["Bearer wrong", "Bearer", "Bearer ", "Basic YTpi", "hrt_x", "Bearer a b", "Bearer ä",
     f"Bearer {'x' * (TOKEN_BYTES_MAX + 1)}"],
)  # fmt: skip
async def test_every_token_that_is_not_valid_gets_the_same_answer(
    authentication: Authentication, sent: str
) -> None:
    with pytest.raises(TokenRefused) as refused:
        await authentication.find(Headers({"authorization": sent}))
    problem = authentication.refusal(refused.value)
    response = problem.response
    assert (problem.status, problem.kind) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == 'Bearer realm="bank", error="invalid_token"'
    assert problem.body["detail"].startswith("the token is not valid here")


async def test_a_request_without_a_token_learns_how_to_send_one(
    authentication: Authentication, clients: Any
) -> None:
    with pytest.raises(TokenRefused) as refused:
        await authentication.find(Headers())
    response = authentication.refusal(refused.value).response
    assert (response.status_code, refused.value.missing) == (401, True)
    assert response.headers["www-authenticate"] == 'Bearer realm="bank"'
    twice = [
        (b"authorization", f"Bearer {clients.tokens[name]}".encode()) for name in ("ann", "bob")
    ]
    with pytest.raises(TokenRefused, match="not one Bearer token"):
        await authentication.find(Headers(raw=twice))


async def test_a_removed_token_is_refused_after_a_look(
    authentication: Authentication, clients: Any
) -> None:
    headers = Headers(clients.headers("ann"))
    assert await authentication.find(headers)
    clients.remove("ann")
    authentication.look()
    with pytest.raises(TokenRefused, match="unknown token"):
        await authentication.find(headers)


def test_a_gateway_without_tokens_asks_for_none() -> None:
    authentication = Authentication(GatewaySettings(), "bank")
    authentication.look()
    assert not authentication.required


async def test_a_token_with_dots_is_judged_by_the_keys_of_its_issuer_and_others_by_the_file(
    clients: Any, issuer: Any, signed_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_set, "fetch", issuer.fetch)
    authentication = Authentication(signed_settings(tokens=clients.path), "bank")
    assert authentication.required
    token = issuer.token("es256", sub="eve")
    found = await authentication.find(Headers({"authorization": f"Bearer {token}"}))
    assert found.name == "eve"
    assert (await authentication.find(Headers(clients.headers("bob")))).name == "bob"
    with pytest.raises(TokenRefused, match="unknown token"):
        await Authentication(signed_settings(), "bank").find(Headers(clients.headers("bob")))
    only_file = Authentication(GatewaySettings(tokens=clients.path), "bank")
    with pytest.raises(TokenRefused, match="unknown token"):
        await only_file.find(Headers({"authorization": f"Bearer {token}"}))
    authentication.stop()
    assert authentication.outage().response.headers["retry-after"] == "1"


def test_signed_tokens_without_the_extra_say_what_to_install(
    signed_settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jwt", None)
    for name in ("signed_tokens", "key_set"):
        monkeypatch.delitem(sys.modules, f"headrace.gateway.access.{name}", raising=False)
    with pytest.raises(ExtraMissing, match=r"pip install 'headrace\[http,jwt\]'"):
        Authentication(signed_settings(), "bank")
