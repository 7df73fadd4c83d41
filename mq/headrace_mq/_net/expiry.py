"""
Tells when a certificate begins and ends to be valid: the few bytes of X.509 that say so. PURE.

    Certificate ─▶ what is signed ─▶ version? │ serial │ algorithm │ issuer │ validity ─▶ not before, not after

The standard library tells it of the other side's certificate alone, if that is believed, and of one's own only what no one
may rely on.

Used by `certificates`, for the metric that warns before a certificate expires, and by `headrace doctor`.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

__all__ = ["Validity", "certificates_in", "expiry_of", "validity_of"]

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----\s(.*?)-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _VERSION, _UTC_TIME, _TIME = 0x30, 0xA0, 0x17, 0x18
# serial, algorithm, issuer.
_BETWEEN: Final = 3
_LONG: Final = 0x80
# A length of more bytes is none of a certificate.
_LENGTH_BYTES_MAX: Final = 4


class Validity(NamedTuple):
    """The times between which a certificate is valid."""

    begins: datetime
    ends: datetime


def expiry_of(pem: bytes) -> float | None:
    """Returns when the first certificate of a PEM file expires, in seconds since 1970; None where it does not tell."""
    found = certificates_in(pem)
    try:
        return validity_of(found[0]).ends.timestamp() if found else None
    except ValueError:
        return None


def certificates_in(pem: bytes) -> list[bytes]:
    """Returns the certificates of a PEM file, as DER; what is none is passed over."""
    found = []
    for text in _PEM.findall(pem):
        try:
            found.append(base64.b64decode(text, validate=False))
        except binascii.Error:
            continue
    return found


def validity_of(certificate: bytes) -> Validity:
    """Returns when a certificate (DER) begins and ends to be valid.

    Raises:
        ValueError: these bytes are no certificate.
    """
    try:
        _, at, _ = _element(certificate, 0, _SEQUENCE)
        _, at, _ = _element(certificate, at, _SEQUENCE)
        if certificate[at] == _VERSION:
            _, _, at = _element(certificate, at)
        for _ in range(_BETWEEN):
            _, _, at = _element(certificate, at)
        _, at, _ = _element(certificate, at, _SEQUENCE)
        begins, at = _moment(certificate, at)
        ends, _ = _moment(certificate, at)
    except IndexError as error:
        raise ValueError("these bytes are no certificate") from error
    return Validity(begins, ends)


def _element(data: bytes, at: int, wanted: int | None = None) -> tuple[int, int, int]:
    """Returns the tag of the element at a place, and where its content begins and ends."""
    tag, size, content = data[at], data[at + 1], at + 2
    if size & _LONG:
        count = size & ~_LONG
        if not 1 <= count <= _LENGTH_BYTES_MAX:
            raise ValueError("these bytes are no certificate")
        size, content = int.from_bytes(data[content : content + count]), content + count
    if (wanted is not None and tag != wanted) or content + size > len(data):
        raise ValueError("these bytes are no certificate")
    return tag, content, content + size


def _moment(data: bytes, at: int) -> tuple[datetime, int]:
    tag, begin, end = _element(data, at)
    text = data[begin:end].decode("ascii", "replace")
    if tag == _UTC_TIME:
        # RFC 5280, 4.1.2.5.1: 50 to 99 are of the last century.
        text = f"{'19' if text[:2] >= '50' else '20'}{text}"
    elif tag != _TIME:
        raise ValueError("these bytes are no certificate")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC), end
