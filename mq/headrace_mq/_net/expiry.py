"""
Tells when a certificate expires: the few bytes of X.509 that say so. PURE.

    Certificate ─▶ what is signed ─▶ version? │ serial │ algorithm │ issuer │ validity ─▶ not before, not after

The standard library tells it of the other side's certificate alone, and of one's own only what no one may rely on.

Used by `certificates`, for the metric that warns before a certificate expires.
"""

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Final

__all__ = ["expiry_of"]

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# Tags of DER (X.690).
_SEQUENCE, _VERSION = 0x30, 0xA0
_FORMS: Final = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
_LONG_FORM = 0x80
# UTCTime has two digits of the year: up to 49 they are of this century (RFC 5280, 4.1.2.5.1).
_CENTURY_ENDS = 2050


def expiry_of(pem: bytes) -> float | None:
    """Returns when the first certificate of a PEM file expires, in seconds since 1970; None where it does not tell."""
    found = _PEM.search(pem)
    if found is None:
        return None
    try:
        return _not_after(base64.b64decode(found[1]))
    except (ValueError, IndexError, KeyError, binascii.Error):
        return None


def _not_after(der: bytes) -> float:
    _, certificate, _ = _element(der, 0)
    _, signed, _ = _element(certificate, 0)
    at = 0
    if signed[0] == _VERSION:
        _, _, at = _element(signed, at)
    for _ in ("serial", "algorithm", "issuer"):
        _, _, at = _element(signed, at)
    tag, validity, _ = _element(signed, at)
    if tag != _SEQUENCE:
        raise ValueError("no validity where one stands in X.509")
    _, _, at = _element(validity, 0)
    tag, text, _ = _element(validity, at)
    moment = datetime.strptime(text.decode("ascii"), _FORMS[tag]).replace(tzinfo=UTC)
    if tag == min(_FORMS) and moment.year >= _CENTURY_ENDS:
        moment = moment.replace(year=moment.year - 100)
    return moment.timestamp()


def _element(data: bytes, at: int) -> tuple[int, bytes, int]:
    """Returns an element's tag, its content, and where the next one begins."""
    tag, length = data[at], data[at + 1]
    begin = at + 2
    if length & _LONG_FORM:
        size = length & ~_LONG_FORM
        length = int.from_bytes(data[begin : begin + size], "big")
        begin += size
    if begin + length > len(data):
        raise ValueError("the certificate is cut off")
    return tag, data[begin : begin + length], begin + length
