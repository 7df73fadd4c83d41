"""`headrace config show`: each setting with its value and where it comes from, and no password."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from headrace.cli import _command_line
from headrace_mq.testing.embedded import broker


def shown(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(_command_line(), ["config", "show", *arguments], env=environment)


def rows(*arguments: str, **environment: str) -> dict[tuple[str, str], tuple[object, str]]:
    found = shown(*arguments, "--json", **environment)
    assert found.exit_code == 0, found.output
    return {(one["command"], one["name"]): (one["value"], one["source"]) for one in json.loads(found.stdout)}  # fmt: skip


def test_a_setting_names_its_source(tmp_path: Path) -> None:
    file = tmp_path / "both.toml"
    file.write_text(
        "[broker]\nconnections_max = 77\n[store]\nflush = 'interval'\n[http]\npage_rows = 50\n"
    )
    found = rows(
        "--config", str(file), "--set", "store.segment_bytes=2MiB",
        HEADRACE_RUN__RESULT_TIMEOUT_MS="5s", HEADRACE_DATA="var/x",
    )  # fmt: skip
    assert found["broker", "connections_max"] == (77, str(file))
    assert found["broker", "store.flush"] == ("interval", str(file))
    assert found["broker", "store.segment_bytes"] == (2 << 20, "--set")
    assert found["run", "result_timeout_ms"] == (5_000, "HEADRACE_RUN__RESULT_TIMEOUT_MS")
    assert found["run", "http.page_rows"] == (50, str(file))
    assert found["broker", "store.directory"] == ("var/x", "HEADRACE_DATA")
    assert found["broker", "port"] == (9876, "default")


def test_a_stronger_source_wins(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text("connections_max = 1\n")
    of = ("--config", str(file))
    name = "broker", "connections_max"
    environment = {"HEADRACE_BROKER__CONNECTIONS_MAX": "2"}
    assert rows(*of)[name] == (1, str(file))
    assert rows(*of, **environment)[name] == (2, "HEADRACE_BROKER__CONNECTIONS_MAX")
    assert rows(*of, "--set", "connections_max=3", **environment)[name] == (3, "--set")


def test_no_password_is_shown() -> None:
    secret = {
        "HEADRACE_EVENT_STORE": "postgresql://bank:hunter2@db/bank",
        "HEADRACE_RUN__READ_MODELS": "postgresql://bank:hunter2@db/bank",
        "HEADRACE_ARCHIVE__URL": "postgresql://bank:hunter2@db/archive",
    }
    for more in ((), ("--json",)):
        found = shown(
            "--given", "--set", "group.record=postgresql://a:hunter2@db/r", *more, **secret
        )
        assert found.exit_code == 0, found.output
        assert "hunter2" not in found.output
        assert "bank" in found.output


def test_given_settings_alone_are_few() -> None:
    found = rows("--given", "--set", "connections_max=5")
    assert found["broker", "connections_max"] == (5, "--set")
    assert all(source != "default" for _, source in found.values())


@pytest.mark.parametrize("pair", ["nothing=1", "connections_max"])
def test_a_mistake_is_a_sentence(pair: str) -> None:
    found = shown("--set", pair)
    assert (found.exit_code, "Traceback" in found.output) == (2, False)


async def test_brokers_that_run_are_asked() -> None:
    async with broker() as address:

        def asked(*arguments: str) -> Result:
            return shown("--running", "--broker", address, *arguments)

        found = await asyncio.to_thread(asked, "--json", "--given")
        table = await asyncio.to_thread(asked)
        differing = await asyncio.to_thread(asked, "--differing")
    assert found.exit_code == 0, found.output
    settings = {one["name"]: one for one in json.loads(found.stdout)["settings"]}
    assert [one["broker"] for one in settings["store.directory"]["brokers"]] == [address]
    assert "store.flush" not in settings
    assert "store.flush" in table.stdout
    assert "store." not in differing.stdout


def test_only_brokers_that_run_are_compared() -> None:
    found = shown("--differing")
    assert (found.exit_code, "only --running compares" in found.output) == (2, True)


def services(*arguments: str) -> Result:
    return CliRunner().invoke(_command_line(), ["config", "services", *arguments])


def test_processes_that_do_not_answer_are_said_and_addresses_are_checked(tmp_path: Path) -> None:
    found = services("127.0.0.1:1", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["services"] == []
    assert "127.0.0.1:1 does not answer" in found.stderr
    assert "name one, or a file of alarms" in services().output
    assert "write http://HOST:PORT/PATH" in services("ftp://h:1/metrics").output
    file = tmp_path / "alarms.toml"
    file.write_text(
        '[[target]]\njob = "headrace-run"\nurl = "http://127.0.0.1:1/metrics"\n'
        '[[target]]\nurl = "http://127.0.0.1:2/metrics"\n'
    )
    found = services("--alarms", str(file))
    assert (found.exit_code, "127.0.0.1:1 does not answer" in found.stderr) == (1, True)
    assert "127.0.0.1:2" not in found.stderr
