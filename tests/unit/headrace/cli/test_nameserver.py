"""`headrace nameserver`: what is given becomes settings, and a mistake is said in a sentence."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import headrace_mq.nameserver.process
from headrace.cli import _command_line
from headrace_mq.name_settings import NameServerSettings


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls the command; returns its outcome and the settings that name servers would have got."""
    settings: list[NameServerSettings] = []

    def run(found: NameServerSettings, ready: Any) -> None:
        settings.append(found)
        ready("127.0.0.1:1")

    monkeypatch.setattr(headrace_mq.nameserver.process, "run", run)

    def call(*arguments: str) -> tuple[Result, list[NameServerSettings]]:
        return CliRunner().invoke(_command_line(), ["nameserver", *arguments]), settings

    return call


def test_without_options_it_has_the_defaults(call: Any) -> None:
    done, settings = call()
    assert done.exit_code == 0, done.output
    assert done.output == "headrace nameserver ready on 127.0.0.1:1\n"
    assert settings == [NameServerSettings()]


def test_options_a_file_and_the_environment_reach_the_settings(
    call: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "names.toml"
    file.write_text("registrations_max = 7\nport = 1\n[broker]\nport = 2\n")
    monkeypatch.setenv("HEADRACE_NAMESERVER__EXPIRY_MS", "5s")
    done, settings = call(
        "--config", str(file), "--port", "3", "--login", "--data", str(tmp_path), "--metrics", "127.0.0.1:0",
        "--set", "not_ready_ms=1s",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert settings == [
        NameServerSettings(
            registrations_max=7, port=3, expiry_ms=5_000, login=True, data=tmp_path, metrics="127.0.0.1:0",
            not_ready_ms=1_000,
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "0.0.0.0"], "other machines reach"),
        (["--login"], "login and data go together"),
        (["--set", "ports=1"], "did you mean port?"),
    ],
)
def test_a_mistake_is_said(call: Any, arguments: list[str], sentence: str) -> None:
    done, settings = call(*arguments)
    assert done.exit_code == 2
    assert sentence in " ".join(done.output.replace("│", " ").split())
    assert settings == []
