"""The whole look at a deployment: parts that do not answer are findings, and the others are looked at."""

import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.doctor import broker_look, examination, machine_look
from headrace.cli.doctor.contradictions import DeploymentSettings
from headrace.cli.doctor.examination import ExaminedGroup, Limits, examine
from headrace.cli.doctor.given import GivenSettings
from headrace.cli.doctor.machine_rules import MachineFacts
from headrace.settings import Settings
from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings
from headrace_mq.testing.embedded import broker

DATABASES = {"event_store": "sqlite:///missing/e.db", "read_models": "sqlite:///missing/r.db"}


@pytest.fixture(autouse=True)
def _this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Java is started for each of these tests."""
    monkeypatch.setattr(machine_look, "look_at_machine", lambda: MachineFacts((3, 12), "", "", ""))


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with broker() as running:
        yield running


async def examined(
    address: str,
    app_path: str = "",
    group: ExaminedGroup | None = None,
    data: Path | None = None,
    parts: DeploymentSettings | None = None,
    databases: Collection[str] = (),
    **changed: Any,
) -> Mapping[str, Any]:
    """Returns the findings by name; a later one of the same name counts."""
    run = Settings(**{"broker": address, **DATABASES, **changed})
    given = GivenSettings(parts or DeploymentSettings(), run, data, [])
    found = await examine(
        given, app_path=app_path, databases=databases, group=group, limits=Limits()
    )
    return {each.name: each for each in found}


async def test_a_broker_alone_is_looked_at_without_databases(address: str) -> None:
    found = await examined(address)
    assert list(found) == [
        "Python", "Java", "headrace", f"broker {address}", "clock of the broker", "messages", "disk of the broker",
    ]  # fmt: skip
    assert {each.state for each in found.values()} == {"ok"}


async def test_an_address_that_is_none_and_one_that_is_away_are_findings(
    free_port: Callable[[], int],
) -> None:
    assert (await examined("strange"))["broker strange"].state == "failed"
    away = f"127.0.0.1:{free_port()}"
    found = await examined(away, "samples.bank:app")
    assert found[f"broker {away}"].state == "failed"
    assert found["event store"].state == "failed"
    assert found["application"].state == "ok"
    assert "parked" not in found


@pytest.mark.parametrize(
    "address", ["tls://u:s3cret@127.0.0.1:1", "u:s3cret@127.0.0.1:1", "127.0.0.1:1?password=s3cret"]
)
async def test_an_address_with_a_password_is_a_finding_that_does_not_tell_it(address: str) -> None:
    found = await examined(address)
    (name,) = (each for each in found if each.startswith("broker "))
    assert found[name].state == "failed"
    assert name in {"broker tls://127.0.0.1:1", "broker 127.0.0.1:1"}
    assert "s3cret" not in str(found)


@pytest.mark.parametrize("path", ["no_such_module:app", "samples.bank:nothing", "samples.bank"])
async def test_an_application_that_cannot_be_loaded_is_a_finding(address: str, path: str) -> None:
    found = await examined(address, path)
    assert found["application"].state == "failed"
    assert found[f"broker {address}"].state == "ok"
    assert "event store" not in found


async def test_an_application_with_a_wrong_choice_of_topics_is_a_finding(address: str) -> None:
    found = await examined(address, "samples.bank:app", command_topics=("other",))
    assert "no topic 'other'" in found["application"].finding


async def test_a_defect_of_one_look_hides_no_other(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(broker_look, "look_at_broker", fail)
    found = await examined(address, "samples.bank:app")
    assert found["broker"].finding == "KeyError: 'x'"
    assert found["event store"].state == "failed"
    assert "topic bank.events" not in found


async def test_a_record_that_is_no_database_is_a_finding(address: str) -> None:
    group = ExaminedGroup("postgresql://127.0.0.1:1/none", "default", "g1")
    found = await examined(address, group=group)
    assert found["record of the group"].state == "failed"


async def test_files_that_others_can_open_and_certificates_are_looked_at(
    address: str, tmp_path: Path, authority: Any
) -> None:
    certificate, key = authority.issue(tmp_path, "localhost")
    key.chmod(0o644)
    data, password = tmp_path / "data", tmp_path / "password"
    data.mkdir(mode=0o755)
    password.write_text("a long pencil")
    password.chmod(0o640)
    settings = BrokerSettings(
        store=StoreSettings(directory=data), tls_certificate=certificate, tls_key=key,
        tls_client_ca=authority.write(tmp_path),
    )  # fmt: skip
    login = f"tcp://{address}?user=ann&password_file={password}"
    found = await examined(login, data=data, parts=DeploymentSettings(broker=settings))
    assert found["mode of the broker's key"].state == "failed"
    assert found["mode of the password"].state == "failed"
    assert found["mode of the broker's folder"].state == "warning"
    assert found[f"certificate of the broker {certificate}"].state == "ok"
    assert found[f"authorities of clients {tmp_path / 'ca.pem'}"].state == "ok"


async def test_a_cluster_of_kafka_that_is_away_is_one_finding() -> None:
    found = await examined("kafka://127.0.0.1:1")
    assert found["Kafka cluster"].state == "failed"
    assert not [name for name in found if name.startswith("broker")]


async def test_databases_that_nothing_names_are_not_looked_at(address: str, tmp_path: Path) -> None:
    settings = BrokerSettings(
        store=StoreSettings(directory=tmp_path),
        archive=ArchiveSettings(url="postgresql://127.0.0.1:1/none"),
    )
    found = await examined(address, parts=DeploymentSettings(broker=settings))
    assert found["archive"].state == "failed"
    assert not {"event store", "read models", "event store and read models"} & found.keys()


async def test_one_database_that_is_named_is_looked_at_alone(address: str, tmp_path: Path) -> None:
    for name in ("e.db", "r.db"):
        (tmp_path / name).touch()
        (tmp_path / name).chmod(0o644)
    urls = {
        "event_store": f"sqlite:///{tmp_path}/e.db",
        "read_models": f"sqlite:///{tmp_path}/r.db",
    }
    found = await examined(address, databases={"event_store"}, **urls)
    assert {"event store", "mode of event store"} <= found.keys()
    assert not {"read models", "mode of read models"} & found.keys()
    same = urls | {"read_models": urls["event_store"]}
    assert "event store" in await examined(address, databases={"event_store"}, **same)
    both = await examined(address, databases={"event_store", "read_models"}, **same)
    assert "event store and read models" in both


async def test_files_that_take_too_long_are_a_finding(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(machine_look, "look_at_folder", lambda *_: ends.wait())
    monkeypatch.setattr(examination, "PART_S", 1)
    try:
        found = await examined(address, data=tmp_path)
    finally:
        ends.set()
    assert found["modes of files"].state == "failed"
    assert found[f"broker {address}"].state == "ok"


async def test_an_address_that_is_none_is_named_without_its_password() -> None:
    found = await examined("tls://ann:s3cret@h:x")
    assert found["broker tls://h:x"].state == "failed"
    assert "s3cret" not in str(found)
