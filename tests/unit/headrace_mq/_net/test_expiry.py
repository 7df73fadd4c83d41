"""The end of a certificate is read from its bytes, and nonsense says nothing."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq._net.expiry import expiry_of

KEY = ec.generate_private_key(ec.SECP256R1())
NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a" * 60)])


def pem(end: datetime) -> bytes:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(NAME).issuer_name(NAME).public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - timedelta(days=365)).not_valid_after(end)
        .sign(KEY, hashes.SHA256())
    )  # fmt: skip
    return certificate.public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("year", [1985, 2001, 2049, 2050, 2120])
def test_the_end_of_a_certificate_is_read(year: int) -> None:
    end = datetime(year, 5, 17, 12, 30, 1, tzinfo=UTC)
    assert expiry_of(pem(end)) == end.timestamp()


def test_the_first_certificate_of_a_file_counts(tmp_path: Path, authority: Any) -> None:
    certificate, _ = authority.issue(tmp_path, "localhost")
    text = certificate.read_bytes()
    alone = x509.load_pem_x509_certificate(text).not_valid_after_utc.timestamp()
    assert expiry_of(text + pem(datetime(2001, 1, 1, tzinfo=UTC))) == alone


@pytest.mark.parametrize(
    "text", [b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
)
def test_a_file_without_a_certificate_says_nothing(text: bytes) -> None:
    assert expiry_of(text) is None


@given(st.integers(30, 400), st.integers(0, 63))
def test_a_damaged_certificate_raises_nothing(place: int, letter: int) -> None:
    text = bytearray(pem(datetime(2030, 1, 1, tzinfo=UTC)))
    text[place] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[letter]
    found = expiry_of(bytes(text))
    assert found is None or isinstance(found, float)
