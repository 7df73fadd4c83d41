"""Signatures of Ed25519: those that fit, and all others."""

import base64
import builtins
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headrace_mq.broker.users.key_exchange import KeyExchange, fits, made_up_key
from headrace_mq.errors import InvalidArgument

KEY = Ed25519PrivateKey.from_private_bytes(b"s" * 32)
PUBLIC = KEY.public_key().public_bytes_raw()
SIGNED = b"headrace login 1"


def test_the_signature_of_the_key_fits_and_no_other_does() -> None:
    right = base64.b64encode(KEY.sign(SIGNED)).decode()
    assert fits(PUBLIC, right, SIGNED)
    assert not fits(PUBLIC, right, b"another text")
    assert not fits(made_up_key(b"t" * 32), right, SIGNED)
    for wrong in ("", "no base64!", "AAAA", base64.b64encode(bytes(64)).decode(), right + "AAAA"):
        assert not fits(PUBLIC, wrong, SIGNED)
    assert not fits(b"short", right, SIGNED)


def test_a_made_up_key_stays_for_its_seed() -> None:
    assert made_up_key(b"s" * 32) == PUBLIC


def test_a_broker_that_cannot_check_keys_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidArgument, match=r"headrace\[certificates\]"):
        made_up_key(b"s" * 32)


def test_an_exchange_is_proven_by_its_own_signature_and_by_no_user_without_a_key() -> None:
    first, again = (KeyExchange.begin(f"r={'n' * 32},n=bank") for _ in range(2))
    assert first.answer != again.answer
    signature = base64.b64encode(KEY.sign(first.signed)).decode()
    assert first.is_proven(signature, PUBLIC, b"t" * 32)
    assert not again.is_proven(signature, PUBLIC, b"t" * 32)
    assert not first.is_proven(signature, b"", b"s" * 32)
