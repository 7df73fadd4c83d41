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
import secrets
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pydantic_core import to_jsonable_python

from headrace.errors import ExtraMissing, SerializationError
from headrace.subjects.keys import KeptKeys, SubjectKeys
from headrace.subjects.personal import Personal

__all__ = ["SEALED", "FieldCipher"]

# The one key of the object that stands for a personal value.
SEALED: Final = "$personal"
_SEALED_JSON: Final = b'"$personal"'
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
            SerializationError: a personal field has no subject.
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
            SerializationError: a value is not what was stored.
            SubjectKeysError: the key cannot be read.
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
            key = None if value is None else self._kept.find(whose)
            if key is None:
                return placeholder
            made = base64.b64decode(value, validate=True)
            plain = self._cipher(key).decrypt(
                made[:_NONCE_BYTES], made[_NONCE_BYTES:], _encode((name, field, whose))
            )
        except (TypeError, ValueError, self._invalid) as error:
            raise SerializationError(
                f"{name}: the personal field {field} is not what was stored"
            ) from error
        return _decode(plain)
