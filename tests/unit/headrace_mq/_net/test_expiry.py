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

from headrace_mq._net.expiry import certificates_in, expiry_of, validity_of

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


def moment(year: int) -> datetime:
    return datetime(year, 3, 1, 12, 30, tzinfo=UTC)


# From 2050 on the times are written in another way.
@pytest.mark.parametrize(
    ("begins", "ends"), [(2020, 2021), (2020, 2049), (2049, 2050), (2051, 2090)]
)
def test_the_times_of_a_certificate_are_read(
    tmp_path: Path, authority: Any, begins: int, ends: int
) -> None:
    certificate, _ = authority.issue(
        tmp_path, "localhost", not_before=moment(begins), not_after=moment(ends)
    )
    (found,) = certificates_in(certificate.read_bytes())
    assert validity_of(found) == (moment(begins), moment(ends))


def test_every_certificate_of_a_file_is_found(
    tmp_path: Path, authority: Any, other_authority: Any
) -> None:
    (tmp_path / "other").mkdir()
    pem = (
        authority.write(tmp_path).read_bytes()
        + b"text\n"
        + other_authority.write(tmp_path / "other").read_bytes()
    )
    assert len({*certificates_in(pem)}) == 2


def test_a_key_is_no_certificate(tmp_path: Path, authority: Any) -> None:
    _, key = authority.issue(tmp_path, "localhost")
    assert certificates_in(key.read_bytes()) == []


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(junk: bytes) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        validity_of(junk)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, authority: Any) -> bytes:
    certificate, _ = authority.issue(tmp_path_factory.mktemp("one"), "localhost")
    return certificates_in(certificate.read_bytes())[0]


@given(data=st.data())
def test_a_changed_certificate_has_times_or_is_refused(one: bytes, data: st.DataObject) -> None:
    changed = bytearray(one)
    changed[data.draw(st.integers(0, 200))] = data.draw(st.integers(0, 255))
    try:
        begins, ends = validity_of(bytes(changed[: data.draw(st.integers(0, len(changed)))]))
    except ValueError:
        return
    assert begins.tzinfo is UTC
    assert ends.tzinfo is UTC
