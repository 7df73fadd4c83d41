"""
The seal of an event message: proves that the event store's own application published it.

    {"aggregate_type": …, …}   ─▶   {"aggregate_type": …, …,"seal":"8b1f0c…:5d41…"}
                                                            store   keyed BLAKE2b of all before it

The seal is in the body, because every reader has that: live, in a rebuild, in an exported file. It is a
field like others there; readers that do not know seals ignore it.

Used by all code that writes or reads the event topic. The key comes from the event store; only the
application gets it. Pure.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final

import msgspec

from headrace.domain.stream_body import MALFORMED
from headrace.stores.base import StoreIdentity

__all__ = ["Seal"]

# An attacker must guess 2 ** 127 of them on average.
_DIGEST_BYTES: Final = 16
# Makes these digests differ from all others that are made with the same key.
_PURPOSE: Final = b"headrace.event"
_CLOSING: Final = '"}'
# The digest in hex, and the characters that close the body.
_TAIL_BYTES: Final = 2 * _DIGEST_BYTES + len(_CLOSING)
_sealed_part: Final = itemgetter(slice(None, -_TAIL_BYTES))
_tail: Final = itemgetter(slice(-_TAIL_BYTES, None))
# Bodies that are compared in one step: few enough for a processor's cache.
_COMPARED_MAX: Final = 500
# Characters from the end of the store's id: its random part.
_ID_CHARACTERS: Final = 12


class _Sealed(msgspec.Struct, gc=False):
    seal: str = ""


_decode_sealed = msgspec.json.Decoder(_Sealed).decode


class Seal:
    """Seals the bodies of event messages, and checks their seals.

    Args:
        identity: the event store's identity, with its key.
    """

    __slots__ = ("_begun", "_identity", "_opening", "_store")

    def __init__(self, identity: StoreIdentity) -> None:
        self._identity = identity
        self._store = identity.id.replace("-", "")[-_ID_CHARACTERS:]
        self._opening = f',"seal":"{self._store}:'.encode()
        # Copied for each message: to start with the key costs as much as the rest of the digest.
        self._begun = blake2b(digest_size=_DIGEST_BYTES, key=identity.seal_key, person=_PURPOSE)

    def __reduce__(self) -> Any:
        # For Spark's executors: a digest that has begun cannot be pickled.
        return Seal, (self._identity,)

    def put_on(self, body: bytes) -> bytes:
        """Returns a stream's JSON with the seal as its last field.

        Raises:
            ValueError: the body does not end like a JSON object.
        """
        if not body.endswith(b"}"):
            raise ValueError("only JSON objects can be sealed")
        said = body[:-1] + self._opening
        digest = self._begun.copy()
        digest.update(said)
        return said + (digest.hexdigest() + _CLOSING).encode()

    def broken(self, bodies: Sequence[bytes]) -> list[int]:
        """Returns the indexes of bodies that do not end with this store's seal of the bytes before it."""
        found: list[int] = []
        for first in range(0, len(bodies), _COMPARED_MAX):
            some = bodies[first : first + _COMPARED_MAX]
            digests = self._digests(some)
            right = _CLOSING.join([*digests, ""]).encode()
            # Tails cannot be longer than the right ones. So the joined bytes are equal only if each tail is.
            if right != b"".join(map(_tail, some)):
                found += [
                    first + place
                    for place, (body, digest) in enumerate(zip(some, digests, strict=True))
                    if _tail(body) != (digest + _CLOSING).encode()
                ]
        return found

    def why_broken(self, body: bytes) -> str:
        """Returns what is wrong with a body that `broken` has found."""
        try:
            store, _, _ = _decode_sealed(body).seal.partition(":")
        except MALFORMED:
            return "it is no event message"
        if not store:
            return "it has no seal"
        if store != self._store:
            return f"it has the seal of another event store, {store}, not of {self._store}"
        return "its seal is of another event"

    def _digests(self, bodies: Iterable[bytes]) -> list[str]:
        """Returns the right digests, in hex, of bodies.

        They need no comparison in constant time: writers of a queue cannot measure its readers.
        """
        begun = self._begun.copy
        digests = [begun() for _ in bodies]
        # In C, without a step of the interpreter per body: a rebuild does this for every event of a topic.
        deque(map(blake2b.update, digests, map(_sealed_part, bodies)), maxlen=0)
        return list(map(blake2b.hexdigest, digests))
