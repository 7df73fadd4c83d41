"""How long a certificate is valid, from its bytes; other bytes are refused."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.doctor.validity import certificates_in, validity_of


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
