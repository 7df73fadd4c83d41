"""The gateway's certificate: which files are refused, and how new ones are taken."""

import os
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace.errors import HeadraceError
from headrace.gateway.certificate import Certificate


def test_files_that_cannot_be_used_are_named(tmp_path: Path, authority: Any) -> None:
    certificate, key = authority.issue(tmp_path, "localhost")
    _, other = authority.issue(tmp_path, "localhost", file="other")
    for files, sentence in (
        ((tmp_path / "absent.pem", key), "No such file.*name two PEM files"),
        ((certificate, tmp_path / "absent.key"), "absent.key cannot be used for HTTP"),
        ((certificate, other), "KEY_VALUES_MISMATCH"),
    ):
        with pytest.raises(HeadraceError, match=sentence):
            Certificate(*files)
    key.chmod(0o644)
    with pytest.raises(HeadraceError, match=f"other users can read .*chmod 600 {key}"):
        Certificate(certificate, key)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a key away")
def test_a_key_of_root_may_be_shared_with_a_group(tmp_path: Path, authority: Any) -> None:
    certificate, key = authority.issue(tmp_path, "localhost")
    key.chmod(0o640)
    Certificate(certificate, key)
    os.chown(key, 12_345, -1)
    with pytest.raises(HeadraceError, match="other users can read"):
        Certificate(certificate, key)


def test_new_files_are_taken_once_and_bad_ones_are_not(tmp_path: Path, authority: Any) -> None:
    files = authority.issue(tmp_path, "localhost")
    certificate = Certificate(*files)
    with capture_logs() as logs:
        certificate.look()
        authority.issue(tmp_path, "localhost")
        certificate.look()
        certificate.look()
        files[0].write_text("half", encoding="utf-8")
        certificate.look()
        certificate.look()
    assert [each["log_level"] for each in logs] == ["info", "warning"]
