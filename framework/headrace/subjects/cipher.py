"""
Personal fields to ciphertext and back, by AES-256-GCM with a key per subject.

In place of a personal field's value stands

    {"$personal": ["c-17", "[forgotten]", "BASE64"]}

with the subject, the placeholder as declared when it was stored, and nonce and ciphertext; null in
place of these if the subject was forgotten before. Bound to the message's name, the field and the
subject: moved elsewhere, it does not open. All that reads it needs no class, so old versions of
messages are opened before their upcasters see them. Used by `serialization` and `registry`.
"""

import base64
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec
from pydantic_core import to_jsonable_python

from headrace.errors import ExtraMissing, SerializationError, SubjectKeysAway
from headrace.subjects.keys import SUBJECT_MAX, KeptKeys, SubjectKeys, is_storable
from headrace.subjects.personal import Personal

__all__ = ["SEALED", "FieldCipher", "never_opened"]

# The one key of the object that stands for a personal value.
SEALED: Final = "$personal"
_SEALED_JSON: Final = b'"$personal"'
# The subject of a sealed value within a message, as a text in JSON.
_SUBJECT: Final = re.compile(rb'"\$personal"\s*:\s*\[\s*"((?:[^"\\]|\\.)*)"\s*,')
# Zero in place of a subject, where a message must not be opened any more. A subject is a text.
_NEVER: Final = rb'"$personal":[0,'
# Subjects whose text in JSON is their text here.
_PLAIN: Final = frozenset((str, int, UUID))
# Random: 2**32 values of one subject could share a key before two nonces of 96 bits may meet.
_NONCE_BYTES: Final = 12

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


class FieldCipher:
    """Seals and opens personal fields.

    Args:
        keys: of the subjects.

    Raises:
        ExtraMissing: the package `cryptography` is not installed.
    """

    def __init__(self, keys: SubjectKeys) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ExtraMissing(
                "personal fields need the package cryptography; run: pip install headrace[personal]"
            ) from error
        self.keys = keys
        self._kept = KeptKeys(keys)
        self._cipher = AESGCM
        self._invalid: type[Exception] = InvalidTag

    async def make_ahead(self, messages: Iterable[Any]) -> None:
        """Makes the keys that messages need, without holding up the event loop where that takes long.

        Args:
            messages: commands, events or application messages that are encoded next.

        Raises:
            SerializationError: no key can be stored for the subject of one; no key was asked for.
            SubjectKeysError: a key cannot be read or made.
        """
        if self._kept.asks_ahead:
            await self._kept.ahead(_subjects_of(messages), make=True)

    async def make_keys_ahead(self, subjects: Iterable[str]) -> None:
        """Like `make_ahead`, for subjects."""
        await self._kept.ahead([_checked(each) for each in subjects], make=True)

    async def find_ahead(self, bodies: Iterable[bytes]) -> None:
        """Reads the keys that messages need, all at once, without holding up the event loop where that takes long.

        Args:
            bodies: messages that are decoded next; what is wrong with one is said where it is decoded.

        Raises:
            SubjectKeysAway: the keys cannot be read just now.
        """
        if self._kept.asks_ahead:
            await self._kept.ahead(filter(is_storable, _subjects_in(bodies)), make=False)
        else:
            self._kept.find_near(_subjects_in(bodies))

    def find_all(self, bodies: Iterable[bytes]) -> None:
        """Like `find_ahead`; blocks."""
        if self._kept.asks_ahead:
            self._kept.find_all(filter(is_storable, _subjects_in(bodies)))

    def close(self) -> None:
        """Closes what the key store has opened, if it has a `close`; it opens it again where needed."""
        close = getattr(self.keys, "close", None)
        if close is not None:
            close()

    def seal_json(self, name: str, personal: Mapping[str, Personal], data: bytes) -> bytes:
        """Like `seal`, for the fields of a message in JSON."""
        if _SEALED_JSON in data:
            raise SerializationError(f"a message of {name} has the key {SEALED}, which is reserved")
        return _encode(self.seal(name, personal, _decode(data))) if personal else data

    def seal(
        self, name: str, personal: Mapping[str, Personal], data: dict[str, Any]
    ) -> dict[str, Any]:
        """Returns the fields of a message with ciphertext in place of personal values.

        Args:
            name: of the message.
            personal: its personal fields.
            data: its fields as JSON values; stays as it is.

        Raises:
            SerializationError: a personal field has no subject, or one for which no key can be stored.
            SubjectKeysError: the key cannot be read or made.
        """
        sealed = dict(data)
        for field, mark in personal.items():
            subject = data.get(mark.subject)
            if not isinstance(subject, str | int) or subject == "":
                raise SerializationError(
                    f"{name}: {field} is personal to {mark.subject}, which must be a text or a number"
                    " and not empty"
                )
            whose, value = str(subject), None
            if self._kept.asks_ahead:
                _checked(whose)
            key = self._kept.make(whose)
            if key is not None:
                nonce = secrets.token_bytes(_NONCE_BYTES)
                plain, bound = _encode(data.get(field)), _encode((name, field, whose))
                made = nonce + self._cipher(key).encrypt(nonce, plain, bound)
                value = base64.b64encode(made).decode()
            sealed[field] = {SEALED: (whose, to_jsonable_python(mark.placeholder), value)}
        return sealed

    def unseal(self, name: str, data: dict[str, Any]) -> dict[str, Any]:
        """Returns the fields of a message with personal values, or their placeholders.

        Args:
            name: of the message.
            data: its fields as stored; stays as it is.

        Raises:
            SerializationError: a value is not what was stored, or its key was lost or cannot be read.
            SubjectKeysAway: the key cannot be read just now.
        """
        found = [
            field
            for field, value in data.items()
            if type(value) is dict and value.keys() == {SEALED}
        ]
        if not found:
            return data
        return {
            **data,
            **{field: self._unsealed(name, field, data[field][SEALED]) for field in found},
        }

    def _unsealed(self, name: str, field: str, stored: Any) -> Any:
        try:
            whose, placeholder, value = stored
            if type(whose) is int and whose == 0:
                raise SerializationError(
                    f"{name}: {field} could not be read when the message was checked; read it from the event"
                    " store: retry what is parked"
                )
            if type(whose) is not str or (self._kept.asks_ahead and not is_storable(whose)):
                return self._refuse(name, field)
            key = None if value is None else self._key_of(name, field, whose)
            if key is None:
                return placeholder
            made = base64.b64decode(value, validate=True)
            plain = self._cipher(key).decrypt(
                made[:_NONCE_BYTES], made[_NONCE_BYTES:], _encode((name, field, whose))
            )
        except (TypeError, ValueError, self._invalid) as error:
            self._refuse(name, field, error)
        return _decode(plain)

    def _key_of(self, name: str, field: str, subject: str) -> bytes | None:
        try:
            return self._kept.find(subject)
        except SubjectKeysAway:
            raise
        except Exception as error:  # a store of users raises what it likes
            raise SerializationError(f"{name}: {field} cannot be read: {error}") from error

    def _refuse(self, name: str, field: str, cause: Exception | None = None) -> NoReturn:
        raise SerializationError(
            f"{name}: the personal field {field} is not what was stored"
        ) from cause


def never_opened(body: bytes) -> bytes:
    """Returns a message whose personal fields cannot be read, also once their keys can be read or are destroyed.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    # Encoded again: a key can be written in more than one way.
    return _SUBJECT.sub(_NEVER, _encode(_decode(body)))


def _subjects_of(messages: Iterable[Any]) -> Iterator[str]:
    for message in messages:
        for mark in type(message).message_personal.values():
            subject = getattr(message, mark.subject)
            if type(subject) in _PLAIN and subject != "":
                yield _checked(str(subject))


def _checked(subject: str) -> str:
    """Returns a subject that a table can hold: one that it cannot would fail a request for many."""
    if not is_storable(subject):
        raise SerializationError(
            f"the id of a person has at most {SUBJECT_MAX} characters, no NUL and no half of a surrogate"
            f" pair; this one, with {len(subject)}, begins with {subject[:20]!r}"
        )
    return subject


def _subjects_in(bodies: Iterable[bytes]) -> Iterator[str]:
    """Yields subjects of sealed values; one that is none fails where its message alone is decoded."""
    texts = (text for body in bodies if _SEALED_JSON in body for text in _SUBJECT.findall(body))
    for text in texts:
        with suppress(msgspec.MsgspecError, UnicodeError):
            yield _decode(b'"%b"' % text)
