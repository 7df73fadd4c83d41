"""Options that several commands share: what is wrong in them is told before anything is done."""

import json
import os
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from headrace.cli import _command_line
from headrace.cli.application import run as run_module
from headrace.cli.options import spark_settings, vouching_store
from headrace.gateway.settings import GatewaySettings
from headrace.settings import Settings


@pytest.mark.parametrize("address", ["localhost", ":1", "queue:x", "queue:65536", "http://queue:1"])
def test_a_wrong_address_of_a_broker_is_refused_with_an_example(run: Any, address: str) -> None:
    done = run("topic", "list", "--broker", address)
    assert (done.status, "looks like 127.0.0.1:9876" in done.output) == (2, True)


@pytest.mark.parametrize(
    "address", ["tls://u:s3cret@127.0.0.1:1", "u:s3cret@127.0.0.1:1", "127.0.0.1:1?password=s3cret"]
)
def test_a_password_in_an_address_of_a_broker_is_not_repeated(run: Any, address: str) -> None:
    done = run("topic", "list", "--broker", address)
    assert (done.status, "s3cret" in done.output) == (2, False)


def test_an_unknown_log_format_is_refused_with_the_known_ones(run: Any) -> None:
    done = run("run", "samples.bank:app", "--log-format", "xml")
    told = " ".join(done.output.replace("│", "").split())
    assert (done.status, "use 'console' or 'json', not 'xml'" in told) == (2, True)


@pytest.mark.parametrize("where", ["8080", "127.0.0.1:x", "127.0.0.1:65536"])
def test_a_wrong_address_for_http_is_refused_with_an_example(run: Any, where: str) -> None:
    done = run("run", "samples.bank:app", "--http", where)
    assert (done.status, "as in 127.0.0.1:8080" in done.output) == (2, True)


def test_a_number_that_no_column_holds_is_refused(run: Any) -> None:
    done = run("stream", "show", "ann", "--app", "samples.bank:app", "--after", str(1 << 63))
    assert (done.status, "--after" in done.output) == (2, True)


@pytest.mark.parametrize("pair", ["spark.x", "x=1", "spark.x="])
def test_a_setting_of_spark_has_a_key_and_a_value(pair: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"use spark\.KEY=VALUE"):
        spark_settings([pair])


def test_events_need_an_event_store_or_the_option_unsealed() -> None:
    assert vouching_store("sqlite:///e.db", unsealed=False) == "sqlite:///e.db"
    assert vouching_store("memory://", unsealed=True) is None
    with pytest.raises(typer.BadParameter, match=r"vouches for no event.*--unsealed"):
        vouching_store("memory://", unsealed=False)


def test_names_of_hosts_and_origins_reach_the_gateway(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[object] = []

    async def serve(_app: object, _settings: object, gateway: object, _told: bytes) -> None:
        found.append(gateway)

    monkeypatch.setattr(run_module, "_serve", serve)
    names = "api.example.com, *.shop.example,"
    asked = ("--http", "[::1]:0", "--http-hosts", names, "--http-origins", "https://shop.example")
    asked += ("--tokens", "var/tokens")
    assert run("run", "samples.bank:app", *asked).status == 0
    (gateway,) = found
    assert isinstance(gateway, GatewaySettings)
    assert (gateway.host, gateway.hosts) == ("::1", ("api.example.com", "*.shop.example"))
    assert gateway.origins == ("https://shop.example",)
    assert gateway.tokens == Path("var/tokens")


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The settings of an application and of HTTP that `headrace run` was about to run."""
    found: list[Any] = []

    async def serve(
        _app: object, settings: Settings, gateway: GatewaySettings | None, told: bytes
    ) -> None:
        found.extend((settings, gateway, told))

    monkeypatch.setattr(run_module, "_serve", serve)
    return found


def test_every_setting_of_an_application_is_reached_by_file_environment_and_set(
    run: Any, served: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(
        "[broker]\nport = 1\n[run]\nsnapshot_events = 7\nlag_messages_max = 7\nlag_ms_max = 7\n"
        "command_topics = ['main']\nbroker = '127.0.0.1:7'\n[http]\npage_rows = 7\n"
    )
    monkeypatch.setenv("HEADRACE_RUN__LAG_MESSAGES_MAX", "8")
    monkeypatch.setenv("HEADRACE_RUN__LAG_MS_MAX", "8s")
    asked = ("--config", str(file), "--set", "lag_ms_max=9s", "--set", "http.body_ms=1m")
    assert run("run", "samples.bank:app", *asked).status == 0
    settings, gateway, _ = served
    assert (settings.snapshot_events, settings.lag_messages_max, settings.lag_ms_max) == (
        7,
        8,
        9_000,
    )
    assert settings.command_topics == ("main",)
    assert settings.event_store == "sqlite:///var/events.db"
    assert (gateway.page_rows, gateway.body_ms, gateway.port) == (7, 60_000, 8080)
    # The test's environment names the broker, which is stronger than a file.
    assert settings.broker != "127.0.0.1:7"


def test_an_address_in_a_file_gets_the_files_of_tls_and_the_user_from_the_environment(
    served: list[Any], tmp_path: Path
) -> None:
    file = tmp_path / "headrace.toml"
    given = {"TLS_CA": "/ca.pem", "USER": "ann", "PASSWORD_FILE": "/ann.txt", "BROKER": None}
    environment = {f"HEADRACE_{name}": value for name, value in given.items()}

    def call(address: str) -> int:
        file.write_text(f"[run]\nbroker = {address!r}\n")
        asked = ["run", "samples.bank:app", "--config", str(file)]
        return CliRunner().invoke(_command_line(), asked, env=environment).exit_code

    assert call("queue.example:7") == 0
    assert served[0].broker == "tls://queue.example:7?ca=/ca.pem&user=ann&password_file=/ann.txt"
    assert call("no address") == 2


def test_an_option_of_run_is_stronger_than_any_other_setting(run: Any, served: list[Any]) -> None:
    asked = (
        "--after-parked",
        "hold",
        "--set",
        "after_parked=go on",
        "--set",
        "name=a",
        "--name",
        "b",
    )
    assert run("run", "samples.bank:app", *asked).status == 0
    assert (served[0].after_parked, served[0].name, served[1]) == ("hold", "b", None)


@pytest.fixture
def pipe() -> Iterator[Path]:
    """Settings as `--config <(sops -d shop.toml)` gives them: a second reader finds nothing."""
    reading, writing = os.pipe()
    os.write(writing, b"[run]\nretry_ms_min = 7\n[http]\npage_rows = 9\n")
    os.close(writing)
    yield Path(f"/dev/fd/{reading}")
    os.close(reading)


def test_an_application_tells_what_gave_each_of_its_settings(
    run: Any, served: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text("[run]\nretry_ms_min = 7\n[http]\npage_rows = 9\n")
    monkeypatch.setenv("HEADRACE_RUN__LAG_MS_MAX", "8s")
    monkeypatch.setenv("HEADRACE_METRICS", "127.0.0.1:0")
    monkeypatch.setenv("HEADRACE_EVENT_STORE", "postgresql://bank:hunter2@db/bank")
    asked = (
        "--config", str(file), "--set", "trace_share=0.5", "--name", "till-1", "--http", "127.0.0.1:8081",
    )  # fmt: skip
    assert run("run", "samples.bank:app", *asked).status == 0
    found = {one["name"]: (one["value"], one["source"]) for one in json.loads(served[2])}
    expected = {
        "retry_ms_min": ("7", str(file)),
        "http.page_rows": ("9", str(file)),
        "lag_ms_max": ("8000", "HEADRACE_RUN__LAG_MS_MAX"),
        "metrics": ("127.0.0.1:0", "HEADRACE_METRICS"),
        "event_store": ("postgresql://db/bank", "HEADRACE_EVENT_STORE"),
        "trace_share": ("0.5", "--set"),
        "name": ("till-1", "--name"),
        "http.port": ("8081", "--http"),
        "read_models": ("sqlite:///var/read.db", "default"),
        "snapshot_events": ("100", "default"),
    }
    assert {name: found[name] for name in expected} == expected
    assert b"hunter2" not in served[2]


def test_a_pipe_with_settings_of_an_application_is_read_once(
    run: Any, served: list[Any], pipe: Path
) -> None:
    assert run("run", "samples.bank:app", "--config", str(pipe)).status == 0
    assert (served[0].retry_ms_min, served[1].page_rows) == (7, 9)
    found = {one["name"]: (one["value"], one["source"]) for one in json.loads(served[2])}
    assert found["retry_ms_min"] == ("7", str(pipe))
    assert found["http.page_rows"] == ("9", str(pipe))


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (("--set", "snapshot_event=1"), "did you mean snapshot_events?"),
        (
            ("--set", "snapshot_events=-1"),
            "snapshot_events: Input should be greater than or equal to 0",
        ),
        (("--after-parked", "stop"), "after_parked: Input should be 'go on' or 'hold'"),
        (("--http", "8080"), "write HOST:PORT"),
        (("--log-level", "loud"), "'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_a_wrong_setting_of_an_application_is_refused(
    run: Any, served: list[Any], asked: tuple[str, ...], sentence: str
) -> None:
    done = run("run", "samples.bank:app", *asked)
    assert done.status == 2
    assert sentence in " ".join(done.output.replace("│", " ").split())
    assert served == []


def test_every_variable_of_run_is_a_setting_or_known_to_be_none() -> None:
    annotations = (one.annotation for one in signature(run_module.run).parameters.values())
    options = [one.__metadata__[0] for one in annotations if hasattr(one, "__metadata__")]
    found = {one.envvar for one in options if one.envvar}
    others = {"HEADRACE_CONFIG", "HEADRACE_LOG_FORMAT", "HEADRACE_LOG_LEVEL", "HEADRACE_TRACING"}
    named = run_module.variables()
    assert found == {*named, run_module.LISTENS, *others}
    fields = {"run": Settings.model_fields, "http": GatewaySettings.model_fields}
    for setting in named.values():
        part, _, name = setting.partition(".")
        assert name in fields[part]
