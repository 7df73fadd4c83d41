"""TLS for every command with a broker's address: by options, by variables, by the address itself."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli import _command_line
from headrace.cli.options import BrokerAddress, QueueAddress
from headrace.cli.tls_options import VARIABLES, SecureGroup


def commands(command: Any) -> list[Any]:
    """All commands below one, and itself."""
    below = [each for one in getattr(command, "commands", {}).values() for each in commands(one)]
    return [command, *below]


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a command gets as its broker's address."""
    found: list[str] = []
    line = typer.Typer(cls=SecureGroup, pretty_exceptions_enable=False)

    @line.command()
    def own(*, broker: BrokerAddress = "127.0.0.1:9876") -> None:
        found.append(broker)

    @line.command()
    def any_queue(*, broker: QueueAddress = "127.0.0.1:9876") -> None:
        found.append(broker)

    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, env: dict[str, str] | None = None) -> str:
        result = CliRunner().invoke(line, arguments, env=env)
        return found.pop() if result.exit_code == 0 else " ".join(result.output.split())

    return call


def test_every_command_with_a_broker_has_the_options_of_tls() -> None:
    line: Any = typer.main.get_command(_command_line())
    context = line.make_context("headrace", ["--help"], resilient_parsing=True)
    taking = []
    for name in line.list_commands(context):
        for each in commands(line.get_command(context, name)):
            variables = {getattr(one, "envvar", None) for one in each.params}
            if "HEADRACE_BROKER" in variables:
                taking.append(each.name)
                assert set(VARIABLES.values()) <= variables, each.name
                assert len(each.params) == len({one.name for one in each.params}), each.name
    assert len(taking) > 20
    assert {"run", "show", "list", "rebuild", "seal"} <= set(taking)


def test_options_variables_and_the_address_itself_say_the_same(
    address: Any, tmp_path: Path
) -> None:
    wanted = f"tls://queue:1?ca={tmp_path}/ca.pem"
    assert address("own", "--broker", "queue:1", "--tls-ca", "ca.pem") == wanted
    assert address("own", "--tls-ca", "ca.pem", "--broker", "queue:1") == wanted
    variables = {"HEADRACE_BROKER": "queue:1", "HEADRACE_TLS_CA": "ca.pem"}
    assert address("own", env=variables) == wanted
    assert address("any-queue", env=variables) == wanted
    assert address("own", "--broker", "tls://queue:1?ca=ca.pem") == wanted


def test_an_address_without_any_of_these_stays_as_it_is(address: Any) -> None:
    assert address("own") == "127.0.0.1:9876"
    assert address("own", "--broker", "a:1, b:2") == "a:1, b:2"
    assert address("own", "--broker", "tls://queue:1") == "tls://queue:1"


def test_a_certificate_of_the_client_needs_its_key(address: Any, tmp_path: Path) -> None:
    both = address("own", "--tls-certificate", "c.pem", "--tls-key", "c.key")
    assert both == f"tls://127.0.0.1:9876?certificate={tmp_path}/c.pem&key={tmp_path}/c.key"
    assert "name both files, or none" in address("own", "--tls-key", "c.key")


def test_addresses_of_kafka_say_all_themselves(address: Any) -> None:
    assert address("any-queue", "--broker", "kafka://k:1", "--tls-ca", "ca.pem") == "kafka://k:1"
