"""An issuer of signed tokens: its keys, and tokens that are good or not."""

import json
import time
from collections.abc import Callable
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from headrace.gateway.settings import GatewaySettings

URL = "https://login.example/keys"
ISSUER = "https://login.example/"


class Issuer:
    """Signs tokens, and publishes the keys for them.

    Attributes:
        keys: by id: the algorithm, and the private key.
        asked: how often its keys were fetched.
        answer: what it answers in place of its keys, if that is set; an error is raised.
    """

    def __init__(self) -> None:
        self.keys: dict[str, tuple[str, Any]] = {}
        self.asked = 0
        self.answer: bytes | Exception | None = None

    def add(self, key_id: str, algorithm: str = "ES256") -> None:
        """Makes a key."""
        made: dict[str, Callable[[], Any]] = {
            "RS256": lambda: rsa.generate_private_key(65_537, 2_048),
            "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
            "EdDSA": ed25519.Ed25519PrivateKey.generate,
        }
        self.keys[key_id] = algorithm, made[algorithm]()

    def published(self, key_id: str) -> dict[str, Any]:
        """The public part of a key, as it is published."""
        algorithm, key = self.keys[key_id]
        kinds: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}
        public = json.loads(kinds[algorithm].to_jwk(key.public_key()))
        return {**public, "kid": key_id, "alg": algorithm, "use": "sig"}

    def fetch(self, url: str) -> bytes:
        """What is at the address of its keys."""
        assert url == URL
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        if self.answer is not None:
            return self.answer
        return json.dumps({"keys": [self.published(each) for each in self.keys]}).encode()

    def token(self, key_id: str, headers: Any = None, **claims: Any) -> str:
        """Signs a token that is good, but for the claims that are given; None leaves one out."""
        algorithm, key = self.keys[key_id]
        good = {
            "sub": "ann", "iss": ISSUER, "aud": "bank", "exp": time.time() + 60, "roles": ["clerk"],
        }  # fmt: skip
        said = {name: value for name, value in {**good, **claims}.items() if value is not None}
        return jwt.encode(said, key, algorithm, {"kid": key_id, **(headers or {})})


@pytest.fixture
def issuer() -> Issuer:
    """One with a key of each algorithm."""
    issuer = Issuer()
    for algorithm in ("RS256", "ES256", "EdDSA"):
        issuer.add(algorithm.lower(), algorithm)
    return issuer


@pytest.fixture
def signed_settings() -> Callable[..., GatewaySettings]:
    """Makes settings of a gateway that believes the issuer."""

    def make(**more: Any) -> GatewaySettings:
        issuer = {"jwks_url": URL, "jwt_issuer": ISSUER, "jwt_audience": ("bank",)}
        return GatewaySettings(**(issuer | more))

    return make
