"""What is looked at on a machine: versions, modes, certificates in files and at servers."""

import ssl
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.doctor import machine_look as subject
from headrace.cli.doctor.machine_rules import java_major

PAST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)


def java_that_says(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(folder))


def test_the_versions_of_this_machine_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java_that_says(tmp_path, 'openjdk version "17.0.1"', monkeypatch)
    found = subject.look_at_machine()
    assert found.python == sys.version_info[:2]
    assert found.headrace == version("headrace")
    assert java_major(found.java) == 17


def test_java_that_is_not_there_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert subject.look_at_machine().java == ""
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert subject.look_at_machine().java == ""


def test_without_spark_no_java_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "installed", lambda package: "" if package == "pyspark" else "1")
    monkeypatch.setattr(subject, "_java", lambda: pytest.fail("it was started"))
    assert subject.look_at_machine()[1:] == ("1", "", "")


def test_the_mode_of_a_folder_and_what_is_open_below_it_are_found(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    for name, mode in (("a", 0o600), ("b", 0o644), ("c", 0o660)):
        (folder / name).touch()
        (folder / name).chmod(mode)
    (folder / "link").symlink_to("a")
    found = subject.look_at_folder("it", folder)
    assert found == ("it", str(folder), 0o700, False, 2)
    assert subject.look_at_folder("it", tmp_path / "missing") is None


def test_the_mode_of_a_secret_is_found(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    file.chmod(0o640)
    found = subject.look_at_secret("key", file)
    assert found is not None
    assert (found.mode, found.secret) == (0o640, True)
    assert subject.look_at_secret("key", tmp_path / "missing") is None


def test_a_certificate_file_says_when_it_ends_or_why_not(tmp_path: Path, authority: Any) -> None:
    certificate, key = authority.issue(tmp_path, "localhost", not_before=PAST[0], not_after=PAST[1])
    found = subject.look_at_certificate("it", certificate)
    assert (found.what, found.begins, found.ends) == (f"it {certificate}", *PAST)
    assert "no certificate" in subject.look_at_certificate("it", key).trouble
    assert "cannot be read" in subject.look_at_certificate("it", tmp_path / "missing").trouble
    (tmp_path / "broken.pem").write_text(
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    assert "no certificate" in subject.look_at_certificate("it", tmp_path / "broken.pem").trouble


def test_all_of_a_chain_are_needed_and_one_authority_is_enough(
    tmp_path: Path, authority: Any
) -> None:
    old, _ = authority.issue(tmp_path, "old", file="old", not_before=PAST[0], not_after=PAST[1])
    both = tmp_path / "both.pem"
    both.write_bytes(old.read_bytes() + authority.write(tmp_path).read_bytes())
    assert subject.look_at_certificate("it", both).ends == PAST[1]
    later = subject.look_at_certificate("it", both, authorities=True).ends
    assert later is not None
    assert later > datetime(2030, 1, 1, tzinfo=UTC)


async def test_the_certificate_of_a_server_is_read_though_it_ended(
    tmp_path: Path, authority: Any, tls_server: Callable[[ssl.SSLContext], Any]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(
        *authority.issue(tmp_path, "other.example", not_before=PAST[0], not_after=PAST[1])
    )
    async with tls_server(context) as port:
        found = await subject.look_at_server("127.0.0.1", port)
    assert found is not None
    assert (found.what, found.ends) == (f"certificate of 127.0.0.1:{port}", PAST[1])


async def test_a_server_without_tls_or_none_at_all_has_no_certificate(
    broker_address: str, free_port: Callable[[], int]
) -> None:
    host, _, port = broker_address.rpartition(":")
    assert await subject.look_at_server(host, int(port)) is None
    assert await subject.look_at_server("127.0.0.1", free_port()) is None
    assert await subject.look_at_server("no such host.invalid", 1) is None


def test_a_folder_with_too_many_files_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def below(_: Path) -> Iterator[int]:
        yield from (0o644, 0o600, 0o640)
        pytest.fail("more was read than the limit")

    monkeypatch.setattr(subject, "_FILES_MAX", 3)
    monkeypatch.setattr(subject, "_below", below)
    found = subject.look_at_folder("it", tmp_path)
    assert found is not None
    assert found.others == 2
