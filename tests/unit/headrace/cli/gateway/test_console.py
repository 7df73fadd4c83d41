"""`headrace console` as you start it."""

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace.errors import HeadraceError


def started(*arguments: str) -> object:
    command_line = headrace.cli._command_line()
    return CliRunner().invoke(command_line, ["console", *arguments])


def test_a_certificate_without_a_key_is_refused() -> None:
    result = started("--certificate", "console.pem")
    assert (result.exit_code, "go together" in result.output) == (2, True)


def test_an_address_of_other_machines_is_refused_without_tls() -> None:
    result = started("--host", "0.0.0.0", "--broker", "127.0.0.1:1")
    assert isinstance(result.exception, HeadraceError)
    assert "--insecure" in str(result.exception)


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib
    import sys

    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    monkeypatch.delitem(sys.modules, "headrace.console", raising=False)
    with pytest.raises(HeadraceError, match=r"pip install 'headrace\[console\]'"):
        importlib.import_module("headrace.console")
