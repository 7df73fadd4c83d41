"""
One login with a key of Ed25519: two random numbers, and the signature of both.

    begin ─▶ name, what is to be signed, the broker's number ─▶ is_proven(signature)

A user that there is not has a made-up key, so that it takes as long as one that there is, and fails at the end.

Used by `logins`, which knows who has which key; uses `cryptography`, which is loaded with the first login by a key.
"""

import secrets
from base64 import b64decode
from binascii import Error as Base64Error
from typing import NamedTuple

from headrace_mq.errors import InvalidArgument
from headrace_mq.protocol.access import read_key_greeting, signed_by_key

__all__ = ["KeyExchange", "fits", "made_up_key"]

_NONCE_BYTES = 32

_SIGNATURE_BYTES = 64


class KeyExchange(NamedTuple):
    """A login that has begun.

    Attributes:
        name: of the user that it is for.
        signed: what the key is to sign.
        answer: the broker's number, for the client.
    """

    name: str
    signed: bytes
    answer: str

    @classmethod
    def begin(cls, message: str) -> "KeyExchange":
        """Takes the first message of a client. Raises LoginFailed: it is none."""
        name, theirs = read_key_greeting(message)
        mine = secrets.token_urlsafe(_NONCE_BYTES)
        return cls(name, signed_by_key(name, theirs, mine), mine)

    def is_proven(self, signature: str, public_key: bytes, seed: bytes) -> bool:
        """Returns whether a signature is that of the user.

        Args:
            signature: in base64.
            public_key: of the user; empty: there is none, and nothing is proven, after as much work.
            seed: makes up the key of a user that has none.

        Raises:
            InvalidArgument: this broker lacks what checks keys.
        """
        made_up = made_up_key(seed)
        return fits(public_key or made_up, signature, self.signed) and bool(public_key)


def made_up_key(seed: bytes) -> bytes:
    """Returns the public key of a seed of 32 bytes, for a user that there is not.

    Raises:
        InvalidArgument: this broker lacks what checks keys.
    """
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ModuleNotFoundError:
        raise InvalidArgument(
            "this broker cannot check keys: install it with pip install 'headrace[certificates]'"
        ) from None
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def fits(public_key: bytes, signature: str, signed: bytes) -> bool:
    """Returns whether a signature in base64 is of this key and these bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        given = b64decode(signature, validate=True)
        if len(given) != _SIGNATURE_BYTES:
            return False
        Ed25519PublicKey.from_public_bytes(public_key).verify(given, signed)
    except (InvalidSignature, Base64Error, ValueError):
        return False
    return True
