"""The settings of a deployment from a file, the environment and `--set`: for a broker, an application, or both."""

from collections.abc import Mapping
from pathlib import Path

import typer

from headrace.cli.doctor.given import GivenSettings, read_settings

OPTIONS = {
    "broker": "h:1",
    "event_store": "sqlite:///e.db",
    "read_models": "sqlite:///r.db",
    "data": None,
}


def read(
    file: Path | None = None,
    *pairs: str,
    environment: Mapping[str, str] | None = None,
    given: tuple[str, ...] = (),
    **options: object,
) -> GivenSettings:
    return read_settings(
        file=file,
        environment=environment or {},
        pairs=pairs,
        options=OPTIONS | options,
        given=given,
    )


def written(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_settings_the_defaults_hold_and_nothing_was_given() -> None:
    found = read()
    assert found.settings == (None, None, None)
    assert found.run.broker == "h:1"
    assert (found.data, found.findings) == (None, [])


def test_a_file_of_both_is_read_for_both(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "[broker]\nport = 7\n[store]\ndirectory = 'd'\n[run]\nname = 'n'\n[http]\nport = 8\n",
    )
    found = read(file)
    broker, run, http = found.settings
    assert broker is not None
    assert run is not None
    assert http is not None
    assert (broker.port, run.name, http.port) == (7, "n", 8)
    assert (found.data, found.findings) == (Path("d"), [])


def test_a_file_with_names_outside_its_tables_is_of_the_command_that_knows_them(
    tmp_path: Path,
) -> None:
    of_broker = read(written(tmp_path, "port = 7\n[store]\nflush = 'interval'\n")).settings
    assert of_broker.broker is not None
    assert (of_broker.broker.port, of_broker.broker.store.flush) == (7, "interval")
    assert of_broker.run is None
    of_run = read(written(tmp_path, "result_timeout_ms = 7\nbroker = 'other:1'\n"))
    assert of_run.settings.broker is None
    assert (of_run.run.result_timeout_ms, of_run.run.broker) == (7, "other:1")


def test_pairs_and_variables_find_their_side() -> None:
    environment = {
        "HEADRACE_STORE__FLUSH": "interval",
        "HEADRACE_HOST": "::1",
        "HEADRACE_LOGIN": "1",
    }
    found = read(None, "port=7", "run.name=n", "result_timeout_ms=5s", environment=environment)
    broker, run, _ = found.settings
    assert broker is not None
    assert run is not None
    assert (broker.port, broker.store.flush, broker.host, broker.login) == (
        7,
        "interval",
        "::1",
        True,
    )
    assert (run.name, run.result_timeout_ms) == ("n", 5_000)


def test_an_option_that_was_given_is_stronger_than_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[run]\nbroker = 'other:1'\nevent_store = 'sqlite:///other.db'\n")
    assert read(file).run.broker == "other:1"
    assert read(file, given=("broker",)).run.broker == "h:1"
    assert read(file, given=("broker",)).run.event_store == "sqlite:///other.db"


def test_an_address_of_a_file_gets_the_files_of_the_options(tmp_path: Path) -> None:
    def secured(address: str) -> str:
        if address == "strange":
            raise typer.BadParameter("it is no address; correct it")
        return f"tls://{address}"

    def run_of(address: str) -> GivenSettings:
        file = written(tmp_path, f"[run]\nbroker = '{address}'\n")
        return read_settings(
            file=file, environment={}, pairs=(), options=OPTIONS, given=(), secured=secured
        )

    assert run_of("other:1").run.broker == "tls://other:1"
    wrong = run_of("strange")
    assert wrong.run.broker == "h:1"
    assert [each.finding for each in wrong.findings] == ["broker: it is no address"]


def test_the_folder_of_the_option_is_stronger_than_that_of_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "[store]\ndirectory = 'd'\n")
    assert read(file, data=Path("e")).data == Path("e")


def test_an_unknown_setting_is_a_finding_and_the_other_side_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, "[store]\nflsh = 'interval'\n[run]\nname = 'n'\n")
    found = read(file)
    (finding,) = found.findings
    assert (finding.state, finding.name) == ("failed", "settings")
    assert "flsh" in finding.finding
    assert finding.advice == "did you mean store.flush?"
    assert found.run.name == "n"


def test_settings_that_their_classes_refuse_are_findings(tmp_path: Path) -> None:
    found = read(
        None,
        "tls_certificate=c.pem",
        "run.command_queues=0",
        "http.page_rows=9999",
        "archive.window_bytes=1MiB",
    )
    said = " | ".join(each.finding for each in found.findings)
    assert "archive.url is missing" in said
    assert "command_queues" in said
    assert "page_rows" in said
    assert found.settings == (None, None, None)
    (alone,) = read(None, "tls_certificate=c.pem").findings
    assert alone.finding.startswith("tls_certificate and tls_key go together")


def test_a_file_that_is_missing_is_one_finding(tmp_path: Path) -> None:
    found = read(tmp_path / "missing.toml")
    assert [each.advice for each in found.findings] == ["name a file of TOML"]
