"""The settings of a deployment from a file, the environment and `--set`: for a broker, an application, or both."""

from collections.abc import Mapping
from pathlib import Path

import typer

from headrace.cli.doctor.contradictions import contradictions
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


GATEWAY = {
    "HEADRACE_HTTP": "[::]:8081",
    "HEADRACE_HTTP_HOSTS": "a.example, b.example",
    "HEADRACE_HTTP_ORIGINS": "https://a.example",
    "HEADRACE_INSECURE": "yes",
    "HEADRACE_GATEWAY_TOKENS_FILE": "tokens",
}


def test_the_variables_of_an_application_are_read() -> None:
    environment = GATEWAY | {
        "HEADRACE_NAME": "on",
        "HEADRACE_AFTER_PARKED": "hold",
        "HEADRACE_COMMANDS": "main,other",
        "HEADRACE_METRICS": "127.0.0.1:9465",
    }
    found = read(environment=environment)
    _, run, http = found.settings
    assert found.findings == []
    assert run is not None
    assert http is not None
    assert (run.name, run.after_parked, run.metrics) == ("on", "hold", "127.0.0.1:9465")
    assert run.command_topics == ("main", "other")
    assert (http.host, http.port, http.insecure, http.tokens) == ("::", 8081, True, Path("tokens"))
    assert (http.hosts, http.origins) == (("a.example", "b.example"), ("https://a.example",))


def test_a_gateway_with_tokens_of_the_environment_has_no_failure(tmp_path: Path) -> None:
    file = written(tmp_path, "[http]\nhost = '10.0.0.5'\ntls_certificate = 'c'\ntls_key = 'k'\n")
    without = contradictions(read(file).settings)
    assert [each.state for each in without] == ["failed"]
    tokens = {"HEADRACE_GATEWAY_TOKENS_FILE": "tokens"}
    assert [each.state for each in contradictions(read(file, environment=tokens).settings)] == [
        "ok"
    ]


def test_variables_of_http_count_where_http_is_served() -> None:
    names = {name: text for name, text in GATEWAY.items() if name != "HEADRACE_HTTP"}
    assert read(environment=names).settings.http is None
    served = read(None, "http.port=8082", environment=names).settings.http
    assert served is not None
    assert (served.port, served.tokens) == (8082, Path("tokens"))


def test_a_variable_is_stronger_than_a_file_and_a_pair_as_its_option_is(tmp_path: Path) -> None:
    file = written(tmp_path, "[run]\nname = 'of file'\n")
    environment = {"HEADRACE_NAME": "of variable", "HEADRACE_PORT": "1", "HEADRACE_HOST": ""}
    found = read(file, "run.name=of pair", "broker.port=2", environment=environment)
    assert found.run.name == "of variable"
    assert found.settings.broker is not None
    assert (found.settings.broker.port, found.settings.broker.host) == (1, "127.0.0.1")


def test_a_variable_that_is_wrong_is_a_finding() -> None:
    (finding,) = read(environment={"HEADRACE_HTTP": "8080"}).findings
    assert finding.finding.startswith("write HOST:PORT")
