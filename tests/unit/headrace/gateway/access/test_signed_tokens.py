"""Signed tokens: every way in which one is not good is refused, and none tells the client which."""

import base64
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headrace.access.principal import Principal
from headrace.gateway.access.refusals import KeysAway, TokenRefused
from headrace.gateway.access.signed_tokens import SignedTokens


@pytest.fixture
def signed(issuer: Any, signed_settings: Any) -> SignedTokens:
    return SignedTokens(signed_settings(), fetched=issuer.fetch)


def unsigned(token: str, **header: Any) -> str:
    """Returns a token with another header, and no signature."""
    parts = [base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()]
    return ".".join([*parts, token.split(".")[1], ""])


@pytest.mark.parametrize("key_id", ["rs256", "es256", "eddsa"])
async def test_a_good_token_of_each_algorithm_is_its_principal(
    signed: SignedTokens, issuer: Any, key_id: str
) -> None:
    assert await signed.find(issuer.token(key_id)) == Principal("ann", frozenset({"clerk"}))


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        ({"exp": 1}, "ExpiredSignatureError"),
        ({"exp": None}, "MissingRequiredClaimError"),
        ({"nbf": 9_999_999_999}, "ImmatureSignatureError"),
        ({"iat": 9_999_999_999}, "ImmatureSignatureError"),
        ({"aud": "shop"}, "InvalidAudienceError"),
        ({"aud": None}, "MissingRequiredClaimError"),
        ({"aud": ["shop", "desk"]}, "InvalidAudienceError"),
        ({"iss": "https://evil.example/"}, "InvalidIssuerError"),
        ({"iss": None}, "MissingRequiredClaimError"),
        ({"sub": None}, "MissingRequiredClaimError"),
        ({"sub": ""}, "no principal has such a name"),
        ({"sub": "a b"}, "no principal has such a name"),
        ({"sub": "x" * 128}, "no principal has such a name"),
        ({"roles": [f"r{number}" for number in range(101)]}, "or so many roles"),
    ],
)
async def test_a_token_with_a_claim_that_is_not_good_is_refused(
    signed: SignedTokens, issuer: Any, claims: dict[str, Any], reason: str
) -> None:
    with pytest.raises(TokenRefused, match=reason):
        await signed.find(issuer.token("es256", **claims))


async def test_a_token_for_several_audiences_is_good_for_each(
    signed: SignedTokens, issuer: Any
) -> None:
    assert await signed.find(issuer.token("es256", aud=["shop", "bank"]))


@pytest.mark.parametrize(
    "algorithm", ["none", "None", "nOnE", "", None, "HS256", "RS512", ["RS256"]]
)
async def test_a_token_that_names_no_algorithm_of_the_settings_is_refused(
    signed: SignedTokens, issuer: Any, algorithm: Any
) -> None:
    token = unsigned(issuer.token("rs256"), alg=algorithm, kid="rs256")
    with pytest.raises(TokenRefused):
        await signed.find(token)
    assert issuer.asked == 0


async def test_the_public_key_is_no_secret_that_signs_a_token(
    signed: SignedTokens, issuer: Any
) -> None:
    public = issuer.keys["rs256"][1].public_key()
    secret = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    said = unsigned(issuer.token("rs256"), alg="HS256", kid="rs256").rstrip(".")
    signature = base64.urlsafe_b64encode(hmac.digest(secret, said.encode(), "sha256"))
    token = f"{said}.{signature.rstrip(b'=').decode()}"
    with pytest.raises(TokenRefused, match="the algorithm is not allowed"):
        await signed.find(token)


async def test_an_algorithm_that_is_not_that_of_the_key_is_refused(
    signed: SignedTokens, issuer: Any
) -> None:
    with pytest.raises(TokenRefused, match="not that of the key"):
        await signed.find(issuer.token("es256", {"kid": "rs256"}))


async def test_a_token_that_was_changed_or_signed_by_another_key_is_refused(
    signed: SignedTokens, issuer: Any
) -> None:
    head, body, signature = issuer.token("es256").split(".")
    other = issuer.token("es256", sub="root").split(".")[1]
    for forged in (
        f"{head}.{other}.{signature}",
        f"{head}.{body}.",
        f"{head}.{body}.{signature[:-8]}",
    ):
        with pytest.raises(TokenRefused):
            await signed.find(forged)
    issuer.keys["strange"] = issuer.keys["es256"]
    issuer.add("es256")
    with pytest.raises(TokenRefused, match="InvalidSignatureError"):
        await signed.find(issuer.token("es256"))


async def test_an_unknown_key_and_an_unknown_extension_are_refused(
    signed: SignedTokens, issuer: Any
) -> None:
    await signed.find(issuer.token("es256"))
    with pytest.raises(TokenRefused, match="unknown key"):
        await signed.find(issuer.token("es256", {"kid": "made-up"}))
    token = issuer.token("es256", {"crit": ["b64"], "b64": True})
    with pytest.raises(TokenRefused):
        await signed.find(token)


@pytest.mark.parametrize("token", ["..", "a.b.c", "e30.e30.", "eyJhbGciOiJSUzI1NiJ9..x"])
async def test_text_with_two_dots_is_not_a_token_yet(signed: SignedTokens, token: str) -> None:
    with pytest.raises(TokenRefused):
        await signed.find(token)


@pytest.mark.parametrize(
    ("claim", "claims", "roles"),
    [
        ("roles", {"roles": ["clerk", "boss"]}, {"clerk", "boss"}),
        ("roles", {"roles": None}, set()),
        ("roles", {"roles": 7}, set()),
        ("roles", {"roles": ["clerk", 7, "a b", ""]}, {"clerk"}),
        ("scope", {"scope": "orders:read orders:write"}, {"orders:read", "orders:write"}),
        ("realm_access.roles", {"realm_access": {"roles": ["clerk"]}}, {"clerk"}),
        ("realm_access.roles", {"realm_access": ["clerk"]}, set()),
        ("https://bank.example/roles", {"https://bank.example/roles": ["boss"]}, {"boss"}),
    ],
)
async def test_roles_are_those_of_the_claim_that_the_settings_name(
    issuer: Any, signed_settings: Any, claim: str, claims: dict[str, Any], roles: set[str]
) -> None:
    signed = SignedTokens(signed_settings(jwt_roles_claim=claim), fetched=issuer.fetch)
    found = await signed.find(issuer.token("es256", **claims))
    assert found.roles == roles


async def test_the_clock_of_the_issuer_may_be_off_by_the_leeway_alone(
    issuer: Any, signed_settings: Any
) -> None:
    token = issuer.token("es256", exp=time.time() - 20)
    assert await SignedTokens(signed_settings(), fetched=issuer.fetch).find(token)
    strict = SignedTokens(signed_settings(jwt_leeway_ms=0), fetched=issuer.fetch)
    with pytest.raises(TokenRefused, match="ExpiredSignatureError"):
        await strict.find(token)


async def test_only_algorithms_of_the_settings_are_taken(issuer: Any, signed_settings: Any) -> None:
    signed = SignedTokens(signed_settings(jwt_algorithms=("EdDSA",)), fetched=issuer.fetch)
    assert await signed.find(issuer.token("eddsa"))
    with pytest.raises(TokenRefused, match="the algorithm is not allowed"):
        await signed.find(issuer.token("rs256"))


async def test_without_keys_no_token_is_judged(signed: SignedTokens, issuer: Any) -> None:
    issuer.answer = OSError("away")
    with pytest.raises(KeysAway):
        await signed.find(issuer.token("es256"))
    signed.stop()
