"""The files in `deploy/` fit the command line, the project and the programs that read them."""

import configparser
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml

from headrace.cli import _command_line
from headrace.stores.database.engines import database_url
from headrace.transports.kafka.address import KafkaAddress, is_kafka
from samples.kafka import VERSION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/headrace/bin/headrace"
HARDENED = {
    "NoNewPrivileges": "true",
    "ProtectSystem": "strict",
    "ProtectHome": "true",
    "PrivateTmp": "true",
    "CapabilityBoundingSet": "",
    "Restart": "on-failure",
}


def unit_at(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    unit.read_string(path.read_text(encoding="utf-8"))
    return unit


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))
    return read


def parsed(arguments: list[str], command: Any = None) -> dict[str, Any]:
    """What the command line makes of the arguments, of the innermost command; runs nothing."""
    command = command or typer.main.get_command(_command_line())
    context = command.make_context("headrace", list(arguments))
    rest = [*getattr(context, "_protected_args", []), *context.args]
    if rest:
        return parsed(rest[1:], command.commands[rest[0]])
    values: dict[str, Any] = context.params
    return values


def environment_names(command: Any = None) -> set[str]:
    """Every variable that the command line reads."""
    command = command or typer.main.get_command(_command_line())
    names = {one.envvar for one in command.params if one.envvar}
    return names.union(*map(environment_names, getattr(command, "commands", {}).values()))


def test_there_are_units_for_a_broker_a_name_server_and_an_application() -> None:
    assert [path.name for path in UNITS] == [
        "headrace-broker.service", "headrace-nameserver.service", "headrace-run.service",
    ]  # fmt: skip


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_a_unit(path: Path, tmp_path: Path) -> None:
    program = shutil.which("systemd-analyze")
    text = path.read_text(encoding="utf-8")
    assert set(unit_at(path).sections()) == {"Unit", "Service", "Install"}
    if program is None:  # no systemd here; the sections above are what can be said without it
        return
    there = tmp_path / path.name
    there.write_text(text.replace(PROGRAM, str(shutil.which("true"))), encoding="utf-8")
    done = subprocess.run(
        [program, "verify", "--man=no", str(there)],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert (done.returncode, path.name in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_restarts_is_hardened_and_may_open_many_files(path: Path) -> None:
    settings = unit_at(path)["Service"]
    assert {name: settings.get(name) for name in HARDENED} == HARDENED
    assert int(settings["LimitNOFILE"]) >= 65_536


def test_the_command_lines_of_the_units_are_understood() -> None:
    broker, names, run = (
        shlex.split(unit_at(path)["Service"]["ExecStart"].replace("${APPLICATION}", "a:b"))
        for path in UNITS
    )
    assert {broker[0], names[0], run[0]} == {PROGRAM}
    told = parsed(broker[1:])
    state = unit_at(UNITS[0])["Service"]["StateDirectory"]
    assert told["store__directory"].is_relative_to(Path("/var/lib") / state)
    assert told["supervise"] is False
    assert parsed(run[1:])["app_path"] == "a:b"
    assert (parsed(names[1:])["host"], parsed(names[1:])["port"]) == ("127.0.0.1", 9875)


def test_the_units_answer_metrics_where_the_page_of_metrics_says() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    told = re.findall(r'job_name: headrace-(\w+)\n.*\n.*\n\s+- targets: \["([^"]+)"\]', page)
    found = {}
    for path in UNITS:
        settings = unit_at(path)["Service"]
        variables = dict(one.split("=") for one in settings.get("Environment", "").split())
        options = parsed(shlex.split(settings["ExecStart"].replace("${APPLICATION}", "a:b"))[1:])
        given = options.get("metrics") or options.get("broker__metrics")
        found[path.stem.removeprefix("headrace-")] = variables.get("HEADRACE_METRICS", given)
    assert found == dict(told)


def test_only_a_broker_or_a_name_server_that_refuses_to_start_stays_down() -> None:
    broker, names, run = (unit_at(path)["Service"] for path in UNITS)
    assert broker.get("RestartPreventExitStatus") == names.get("RestartPreventExitStatus") == "2"
    assert run.get("RestartPreventExitStatus") is None


def test_variables_in_the_files_are_read_by_the_command_line() -> None:
    files = [path for path in DEPLOY.rglob("*") if path.is_file()]
    named = {
        name
        for path in files
        for name in re.findall(r"HEADRACE_[A-Z_]+", path.read_text(encoding="utf-8"))
    }
    assert named
    assert named - environment_names() == set()


def test_the_command_lines_of_the_containers_are_understood() -> None:
    services = compose()["services"]
    own = {name: one["command"] for name, one in services.items() if one["image"] == "headrace"}
    assert sorted(own) == ["application", "broker", "schema"]
    broker = parsed(own["broker"])
    assert (broker["supervise"], broker["broker__host"]) == (True, "0.0.0.0")
    assert broker["broker__insecure"] is True
    assert broker["store__directory"].is_relative_to(
        services["broker"]["volumes"][0].rpartition(":")[2]
    )
    assert parsed(own["application"])["app_path"] == "samples.bank:app"
    assert parsed([*own["schema"], "--url", "sqlite://"])["revision"] == "head"
    kind, program, *asked = services["broker"]["healthcheck"]["test"]
    assert (kind, program) == ("CMD", "headrace")
    assert parsed(asked)["broker"] == f"127.0.0.1:{broker['broker__port']}"


def test_a_wrong_option_in_a_file_would_be_noticed() -> None:
    with pytest.raises(Exception, match="No such option"):
        parsed(["broker", "--data", "d", "--supervize"])


KAFKAS = ["kafka-1", "kafka-2", "kafka-3"]


@pytest.mark.parametrize(
    ("file", "queues"), [("compose.yaml", ["broker"]), ("compose.kafka.yaml", KAFKAS)]
)
def test_containers_have_health_checks_limits_and_wait_for_what_they_need(
    file: str, queues: list[str]
) -> None:
    told = compose(file)
    services = told["services"]
    lasting = {name: one for name, one in services.items() if one["restart"] != "no"}
    assert sorted(lasting) == sorted(["application", "postgres", *queues])
    assert set(queues) <= set(services["application"]["depends_on"])
    assert [name for name, one in lasting.items() if "test" not in one["healthcheck"]] == []
    for one in services.values():
        for needed, how in one.get("depends_on", {}).items():
            ended = needed not in lasting
            wanted = "service_completed_successfully" if ended else "service_healthy"
            assert how["condition"] == wanted
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
        assert {volume.partition(":")[0] for volume in one.get("volumes", [])} <= set(
            told["volumes"]
        )


def test_the_containers_of_kafka_are_one_cluster_that_the_application_finds() -> None:
    services = compose("compose.kafka.yaml")["services"]
    own = {name: one["command"] for name, one in services.items() if one["image"] == "headrace"}
    assert parsed(own["application"])["app_path"] == "samples.bank:app"
    assert parsed([*own["schema"], "--url", "sqlite://"])["revision"] == "head"
    address = KafkaAddress.parse(services["application"]["environment"]["HEADRACE_BROKER"])
    assert address.servers == tuple(f"{name}:9092" for name in KAFKAS)
    for number, name in enumerate(KAFKAS, 1):
        told = services[name]["environment"]
        assert told["KAFKA_NODE_ID"] == number
        assert told["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{name}:9092"
        assert f"{number}@{name}:9093" in told["KAFKA_CONTROLLER_QUORUM_VOTERS"].split(",")
        assert services[name]["image"] == f"apache/kafka:{VERSION}"
        assert services[name]["volumes"] == [f"{name}:{told['KAFKA_LOG_DIRS']}"]
        assert (told["KAFKA_MIN_INSYNC_REPLICAS"], "ports" in services[name]) == (2, False)


@pytest.mark.parametrize("file", ["compose.yaml", "compose.kafka.yaml"])
def test_the_databases_of_the_containers_have_addresses_that_are_understood(file: str) -> None:
    services = compose(file)["services"]
    for name in ("schema", "application"):
        for variable, url in services[name]["environment"].items():
            if "://" in url and not is_kafka(url):
                filled = re.sub(r"\$\{[^}]+\}", "secret", url)
                address = database_url(filled)
                assert (variable, address.host in services) == (variable, True)


def test_an_image_is_made_of_files_that_are_there_and_let_in() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [
        source
        for line in re.findall(r"^COPY (.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    ignore = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    assert sorted(copied) == sorted(line[1:] for line in ignore if line.startswith("!"))
    assert [source for source in copied if not (ROOT / source).exists()] == []


def test_an_image_has_a_python_that_fits_and_extras_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (python,) = re.findall(r"^FROM python:(\d+\.\d+)-slim$", text, re.MULTILINE)
    assert project["requires-python"] == f">={python}"
    (extras,) = re.findall(r'"\.\[([\w,]+)\]"', text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert 'ENTRYPOINT ["headrace"]' in text
    assert "\nUSER headrace\n" in text
