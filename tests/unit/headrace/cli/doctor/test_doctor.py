"""`headrace doctor` as you meet it: one line for each check, or JSON, and the exit status."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headrace.cli
from headrace.cli.doctor import machine_look
from headrace.cli.doctor.machine_rules import MachineFacts
from tests.unit.headrace.cli.conftest import running_broker


@pytest.fixture(scope="module")
def broker_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: on that of the other tests, groups wait whose members are gone."""
    with running_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_look, "look_at_machine", lambda: MachineFacts((3, 12), "", "", ""))


def test_each_check_is_one_line_and_the_last_one_counts_them(run, broker_address) -> None:
    done = run("doctor")
    assert done.status == 0, done
    header, *rows, last = done.rows
    assert header == ["state", "check", "finding", "what to do"]
    assert [row[:2] for row in rows if row[0] == "ok"][3] == ["ok", f"broker {broker_address}"]
    assert last[0].startswith(f"{len(rows)} ok, 0 warning, 0 failed; name an application")


def test_json_has_the_same(run) -> None:
    found = run("doctor", "--json").json
    assert found["state"] == "ok"
    assert set(found["checks"][0]) == {"state", "name", "finding", "advice"}


def test_warnings_end_with_status_1_and_failures_with_2(
    run, free_port: Callable[[], int], tmp_path: Path
) -> None:
    warned = run("doctor", "--disk-days", "0", "--set", "run.retry_ms_min=9s")
    assert warned.status == 1
    assert "run.retry_ms_min=9000 and run.retry_ms_max=5000" in warned.output
    failed = run("doctor", "--broker", f"127.0.0.1:{free_port()}")
    assert failed.status == 2
    assert "check that it is running" in failed.output
    file = tmp_path / "settings.toml"
    file.write_text("strange = [", encoding="utf-8")
    assert run("doctor", "--config", str(file)).status == 2


def test_a_wrong_application_is_named(run) -> None:
    done = run("doctor", "no_such_module:app", "--json")
    assert done.status == 2
    (found,) = (one for one in json.loads(done.output)["checks"] if one["name"] == "application")
    assert "no_such_module" in found["finding"]


@pytest.mark.parametrize(
    "options", [["--clock-max", "5"], ["--disk-days", "-1"], ["--broker", "x"]]
)
def test_an_option_that_is_wrong_is_refused(options: list[str]) -> None:
    done = CliRunner().invoke(headrace.cli._command_line(), ["doctor", *options])
    assert done.exit_code == 2
    assert "Traceback" not in done.output


def test_databases_are_looked_at_where_they_are_named(run, tmp_path: Path) -> None:
    done = run("doctor", "--event-store", f"sqlite:///{tmp_path}/e.db", "--json")
    found = {one["name"]: one for one in json.loads(done.output)["checks"]}
    assert found["event store"]["advice"].startswith(
        "correct the URL, or make it: headrace db upgrade"
    )


def test_databases_that_are_not_named_are_not_looked_at(run, tmp_path: Path) -> None:
    store = run("doctor", "--event-store", f"sqlite:///{tmp_path}/e.db", "--json").json
    assert "read models" not in {one["name"] for one in store["checks"]}
    archive = run("doctor", "--set", "archive.url=postgresql://127.0.0.1:1/none", "--json").json
    names = {one["name"]: one["state"] for one in archive["checks"]}
    assert names["archive"] == "failed"
    assert not {"event store", "read models"} & names.keys()


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_no_password_is_printed(run, output: tuple[str, ...]) -> None:
    database = "postgresql://bank:s3cret@127.0.0.1:1/bank"
    stores = run("doctor", *output, "--event-store", database, "--set", "run.read_models=sqlite://")
    assert "run.event_store=postgresql://bank:***@127.0.0.1:1/bank" in stores.output
    cluster = "kafka://127.0.0.1:1?sasl.username=u&sasl.password=s3cret"
    kafka = run("doctor", *output, "--broker", cluster, "--event-store", "sqlite://")
    assert "run.broker=kafka://127.0.0.1:1" in kafka.output
    wrong = run("doctor", *output, "--event-store", "mysql://bank:s3cret@h/d")
    archive = run("doctor", *output, "--set", f"archive.url={database}")
    record = run("doctor", *output, "--record", database)
    for said in (stores, kafka, wrong, archive, record):
        assert said.status == 2
        assert "s3cret" not in said.output
