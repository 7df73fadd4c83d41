"""`headrace user` as an administrator meets it; no password stands in an argument."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headrace.cli import _command_line


@pytest.fixture
def call(tmp_path: Path) -> Any:
    def call(*arguments: str, text: str | None = None) -> Any:
        return CliRunner().invoke(_command_line(), ["user", *arguments], input=text)

    return call


@pytest.fixture
def password(tmp_path: Path) -> Path:
    file = tmp_path / "password"
    file.write_text("pencil\n")
    file.chmod(0o600)
    return file


def test_the_first_administrator_is_made_in_a_folder(
    call: Any, tmp_path: Path, password: Path
) -> None:
    data = str(tmp_path / "data")
    made = call("add", "ann", "--admin", "--data", data, "--new-password-file", str(password))
    assert made.output == "ann: administrator, logs in with a password\n"
    asked = call("add", "bob", "--role", "clerks", "--data", data, text="pen\npen\n")
    assert asked.output.endswith("bob: user, logs in with a password, roles clerks\n")
    assert "pen\n" not in asked.output
    by_certificate = call("add", "CN=reports,O=Bank", "--certificate", "--data", data)
    assert by_certificate.output == "CN=reports,O=Bank: user, logs in with a certificate\n"


@pytest.mark.parametrize("name", ["add", "password"])
def test_no_option_takes_a_password(call: Any, name: str) -> None:
    assert call(name, "ann", "--password", "pencil").exit_code == 2
    assert call(name, "ann", "pencil").exit_code == 2


def test_a_service_is_added_with_its_key_or_the_public_part_of_it(
    call: Any, tmp_path: Path
) -> None:
    data, key = str(tmp_path / "data"), tmp_path / "bank.key"
    made = CliRunner().invoke(_command_line(), ["certificates", "key", str(key)])
    assert made.exit_code == 0, made.output
    assert key.stat().st_mode & 0o077 == 0
    for name, file in (("bank", key), ("shop", key.with_name("bank.key.pub"))):
        added = call("add", name, "--key", str(file), "--data", data)
        assert added.output == f"{name}: user, logs in with a key\n"
    both = call("add", "both", "--key", str(key), "--certificate", "--data", data)
    assert both.exit_code == 2
    wrong = tmp_path / "wrong.pub"
    wrong.write_text("-----BEGIN PUBLIC KEY-----\nx\n-----END PUBLIC KEY-----\n")
    assert "no key of Ed25519" in str(
        call("add", "eve", "--key", str(wrong), "--data", data).exception
    )
    again = CliRunner().invoke(_command_line(), ["certificates", "key", str(key)])
    assert "exists" in str(again.exception)
