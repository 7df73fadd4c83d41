"""
The seal of an event message: proof that the event store's own application published it.

    {"aggregate_type": …, …}   ─▶   {"aggregate_type": …, …,"seal":"8b1f0c…:5d41…"}
                                                            store   keyed BLAKE2b of all before it

It stands in the body, because that is what every reader has: live, in a rebuild, in an exported file.
There it is a field like others, which readers that know no seals pass over.

Sits between: whoever writes or reads the event topic and the key, which never leaves the event store
but with its application. Pure.
"""

from binascii import hexlify
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

import msgspec

from headrace.stores.base import StoreIdentity

__all__ = ["Seal", "aggregate_of"]

# Guessing one takes 2 ** 127 messages on average.
_DIGEST_BYTES: Final = 16
# Keeps these digests apart from all others that may ever be made with the key.
_PURPOSE: Final = b"headrace.event"
# The digest in hex, a quotation mark and a brace.
_TAIL_BYTES: Final = 2 * _DIGEST_BYTES + 2
# The end of the store's id, which is its random part.
_ID_CHARACTERS: Final = 12


class _Owner(msgspec.Struct, gc=False):
    aggregate_id: str


class _Sealed(msgspec.Struct, gc=False):
    seal: str = ""


_decode_owner = msgspec.json.Decoder(_Owner).decode
_decode_sealed = msgspec.json.Decoder(_Sealed).decode


class Seal:
    """Seals bodies of event messages, and knows its own.

    Args:
        identity: of the event store.
    """

    __slots__ = ("_begun", "_identity", "_opening", "_store")

    def __init__(self, identity: StoreIdentity) -> None:
        self._identity = identity
        self._store = identity.id.replace("-", "")[-_ID_CHARACTERS:]
        self._opening = f',"seal":"{self._store}:'.encode()
        # Copied for each message: beginning with a key costs as much as the rest of it.
        self._begun = blake2b(digest_size=_DIGEST_BYTES, key=identity.seal_key, person=_PURPOSE)

    def __reduce__(self) -> Any:
        # To executors; what is begun does not travel.
        return Seal, (self._identity,)

    def put_on(self, body: bytes) -> bytes:
        """Returns a stream's JSON with the seal as its last field.

        Raises:
            ValueError: it does not end like a JSON object.
        """
        if not body.endswith(b"}"):
            raise ValueError("only JSON objects can be sealed")
        said = body[:-1] + self._opening
        digest = self._begun.copy()
        digest.update(said)
        return b'%b%b"}' % (said, hexlify(digest.digest()))

    def broken(self, bodies: Iterable[bytes]) -> list[int]:
        """Returns the places of bodies that do not end with this store's seal of all before it."""
        begun = self._begun.copy
        found = []
        for place, body in enumerate(bodies):
            digest = begun()
            digest.update(body[:-_TAIL_BYTES])
            # Who would measure how long this takes would have to guess it all the same: what is
            # read comes from a queue.
            if not body.endswith(b'%b"}' % hexlify(digest.digest())):
                found.append(place)
        return found

    def why_broken(self, body: bytes) -> str:
        """Says what is wrong with a body that `broken` has found."""
        try:
            store, _, _ = _decode_sealed(body).seal.partition(":")
        except msgspec.DecodeError:
            return "it is no event message"
        if not store:
            return "it has no seal"
        if store != self._store:
            return f"it has the seal of another event store, {store}, not of {self._store}"
        return "its seal is of another event"


def aggregate_of(body: bytes) -> str | None:
    """Returns whose events a body holds; None where that does not stand in it."""
    try:
        return _decode_owner(body).aggregate_id
    except msgspec.DecodeError:
        return None
