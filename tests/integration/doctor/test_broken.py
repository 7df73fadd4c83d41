"""A sound deployment has no finding; each broken part of one has its own, and no other."""

import asyncio
import json
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace_mq import Message, Producer
from headrace_mq.cluster.records.postgres import PostgresRecord

BANK = "samples.bank:app"
PARKING = """
from headrace import Aggregate, AggregateId, App, Command, CommandContext


class Ship(Command):
    order_id: AggregateId


app = App("shipping")


@app.handles
async def ship(command: Ship, context: CommandContext) -> None:
    raise RuntimeError("the lorry is broken")
"""
SEND = """
import asyncio, sys
from headrace import Settings
from shipping import Ship, app

async def main(address):
    async with app.client(Settings(broker=address)) as bus:
        print((await bus.execute(Ship(order_id="o-1"))).status)

asyncio.run(main(sys.argv[1]))
"""


def test_a_sound_deployment_has_no_finding(deployment: Any) -> None:
    deployment.broker()
    deployment.application(BANK)
    said = deployment.settled(BANK, "--data", "broker")
    assert (said.status, said.troubles) == (0, {}), said.text
    for name in (
        "parked",
        "projection balances",
        "topic bank.events",
        "command service",
        "disk of the event store",
    ):
        assert said.state(name) == "ok"
    table = deployment.process("doctor", BANK, "--broker", deployment.address)
    assert "0 warning, 0 failed" in table


def test_a_sound_deployment_with_postgresql_has_no_finding(
    deployment: Any, postgres_database: str
) -> None:
    databases = ("--event-store", postgres_database, "--read-models", postgres_database)
    deployment.run("db", "upgrade", "--url", postgres_database)
    deployment.broker()
    deployment.application(BANK, *databases)
    said = deployment.settled(BANK, *databases)
    assert (said.status, said.troubles) == (0, {}), said.text
    assert said.state("event store and read models") == "ok"


def test_an_application_that_never_ran_lacks_databases_topics_and_a_process(
    deployment: Any,
) -> None:
    deployment.broker()
    said = deployment.doctor(BANK)
    assert said.troubles == {
        "event store": "failed", "read models": "failed", "command service": "warning",
        "topic bank.commands": "warning", "topic bank.events": "warning", "topic bank.messages": "warning",
    }  # fmt: skip
    assert sorted(path.name for path in deployment.folder.iterdir()) == ["broker", "log"], (
        "a doctor makes nothing"
    )


def test_a_service_that_was_stopped_leaves_a_group_without_members(deployment: Any) -> None:
    deployment.broker()
    service = deployment.application(BANK)
    assert deployment.settled(BANK).troubles == {}
    service.send_signal(signal.SIGTERM)
    service.communicate()
    assert deployment.doctor(BANK).troubles == {"command service": "warning"}


def test_a_schema_that_is_behind_is_a_failure_with_its_command(deployment: Any) -> None:
    deployment.broker()
    for name in ("events", "read"):
        deployment.run("db", "upgrade", "--url", f"sqlite:///var/{name}.db")
    deployment.run("db", "downgrade", "--url", "sqlite:///var/read.db", "--revision", "-1")
    said = deployment.doctor(BANK)
    assert said.troubles.keys() >= {"read models"}
    assert (
        said.checks["read models"]["advice"]
        == "run: headrace db upgrade --url sqlite:///var/read.db"
    )
    assert said.state("event store") == "ok"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://127.0.0.1:1/none",
        "postgresql://no.such.host.invalid/none",
        "mysql://h/d",
        "strange",
        "memory://",
    ],
)
def test_a_database_that_cannot_be_used_is_a_finding(deployment: Any, url: str) -> None:
    deployment.broker()
    said = deployment.doctor("--event-store", url, "--read-models", url)
    state = "warning" if url == "memory://" else "failed"
    assert said.state("event store and read models") == state
    assert said.state(f"broker {deployment.address}") == "ok"


def test_wrong_addresses_are_findings(deployment: Any, free_port: Callable[[], int]) -> None:
    deployment.broker()
    away = f"127.0.0.1:{free_port()}"
    both = deployment.doctor(address=f"{deployment.address},{away}")
    assert both.troubles == {f"broker {away}": "warning"}
    alone = deployment.doctor(address=away)
    assert alone.troubles == {f"broker {away}": "failed"}
    nowhere = deployment.doctor(address="no.such.host.invalid:1")
    assert nowhere.troubles == {"broker no.such.host.invalid:1": "failed"}


def test_topics_that_do_not_fit_the_application_are_findings(deployment: Any) -> None:
    deployment.broker()
    to_broker = ("--broker", deployment.address)
    deployment.run("topic", "create", "bank.commands", "--queues", "2", *to_broker)
    deployment.run("topic", "create", "bank.events", "--queues", "4", *to_broker)
    deployment.run("topic", "create", "bank.messages", "--queues", "4", *to_broker)
    deployment.run("topic", "create", "bank.commands.old", "--queues", "1", *to_broker)
    deployment.run("topic", "freeze", "bank.messages", "--queue", "3", "--writing", *to_broker)
    said = deployment.doctor(BANK)
    assert said.state("topic bank.commands") == "warning"
    assert "settings say 4" in said.checks["topic bank.commands"]["finding"]
    assert said.state("topic bank.events") == "failed"
    assert "frozen: 3" in said.checks["topic bank.messages"]["finding"]
    assert said.state("topic bank.commands.old") == "warning"


def test_groups_that_are_behind_or_paused_and_dead_letters_are_findings(deployment: Any) -> None:
    deployment.broker()
    to_broker = ("--broker", deployment.address)
    deployment.run("topic", "create", "orders", "--queues", "1", *to_broker)
    deployment.run("topic", "create", "%DLQ%kitchen", "--queues", "1", *to_broker)
    deployment.run("message", "send", "orders", "tea", *to_broker)
    deployment.run("message", "send", "%DLQ%kitchen", "milk", *to_broker)
    deployment.run("group", "reset", "billing", "--topic", "orders", "--earliest", *to_broker)
    deployment.run("group", "set", "reports", "--consume", "off", *to_broker)
    said = deployment.doctor()
    assert said.troubles == {
        "group billing": "warning",
        "group reports": "warning",
        "group kitchen": "warning",
    }
    assert "1 messages wait" in said.checks["group billing"]["finding"]
    assert "1 dead letters" in said.checks["group kitchen"]["finding"]


def test_a_parked_command_and_a_paused_projection_are_findings(deployment: Any) -> None:
    (deployment.folder / "shipping.py").write_text(PARKING, encoding="utf-8")
    (deployment.folder / "send.py").write_text(SEND, encoding="utf-8")
    deployment.broker()
    deployment.application("shipping:app", "--set", "error_retries_max=0")
    done = deployment.python("send.py", deployment.address)
    assert "failed" in done.lower()
    said = deployment.doctor("shipping:app")
    assert said.troubles == {"parked by commands": "warning"}
    deployment.application(BANK)
    deployment.run("projection", "pause", "balances", "--app", BANK)
    said = deployment.doctor(BANK)
    assert said.state("projection balances") == "warning"
    assert "paused" in said.checks["projection balances"]["finding"]


def test_a_broker_whose_disk_is_full_is_a_failure(deployment: Any) -> None:
    deployment.broker("--disk-refuse", "1%", "--disk-delete", "1%")
    said = deployment.doctor()
    assert said.troubles == {"messages": "failed", "disk of the broker": "failed"}
    assert deployment.doctor("--set", "store.disk_delete_percent=95").state("settings") == "warning"


def test_files_that_others_can_open_are_a_warning(deployment: Any) -> None:
    deployment.broker()
    deployment.application(BANK)
    assert deployment.settled(BANK, "--data", "broker").troubles == {}
    next((deployment.folder / "broker").rglob("*.log"), deployment.folder / "broker").chmod(0o644)
    (deployment.folder / "var" / "events.db").chmod(0o644)
    said = deployment.doctor(BANK, "--data", "broker")
    assert said.troubles == {
        "mode of the broker's folder": "warning",
        "mode of event store": "warning",
    }


def test_settings_that_contradict_each_other_are_named(deployment: Any) -> None:
    deployment.broker()
    (deployment.folder / "both.toml").write_text(
        "[broker]\ntls_certificate = 'c.pem'\n[run]\nresult_timeout_ms = 4000\n", encoding="utf-8"
    )
    said = deployment.doctor("--config", "both.toml", "--set", "http.streams_max=900")
    found = [one for one in json.loads(said.text)["checks"] if one["name"] == "settings"]
    assert [one["state"] for one in found] == ["failed", "warning", "warning"]
    assert "tls_certificate and tls_key go together" in found[0]["finding"]
    assert "run.result_resend_ms=5000 and run.result_timeout_ms=4000" in found[1]["finding"]


def test_a_certificate_that_ends_soon_and_a_client_without_tls_are_findings(
    deployment: Any, authority: Any
) -> None:
    soon = datetime.now(UTC) + timedelta(days=5)
    folder = deployment.folder
    certificate, key = authority.issue(folder, "localhost", "127.0.0.1", not_after=soon)
    deployment.broker("--tls-certificate", str(certificate), "--tls-key", str(key))
    ca = authority.write(folder)
    secured = deployment.doctor(address=f"tls://{deployment.address}?ca={ca}")
    assert secured.troubles == {f"certificate of {deployment.address}": "warning"}
    plain = deployment.doctor()
    assert plain.state(f"broker {deployment.address}") == "failed"
    unknown = deployment.doctor(address=f"tls://{deployment.address}")
    assert unknown.state(f"broker {deployment.address}") == "failed"
    assert "authority" in unknown.checks[f"broker {deployment.address}"]["finding"]


def test_a_login_that_fails_and_one_that_may_not_look_are_findings(deployment: Any) -> None:
    folder = deployment.folder
    for name in ("root", "ann"):
        (folder / f"{name}.txt").write_text(f"the password of {name}", encoding="utf-8")
        (folder / f"{name}.txt").chmod(0o600)
    deployment.run(
        "user", "add", "root", "--admin", "--data", "broker", "--new-password-file", "root.txt"
    )
    deployment.broker("--login")
    root = f"tcp://{deployment.address}?user=root&password_file=root.txt"
    assert deployment.doctor(address=root).troubles == {}
    assert deployment.doctor().troubles == {f"broker {deployment.address}": "failed"}
    wrong = deployment.doctor(address=f"tcp://{deployment.address}?user=root&password_file=ann.txt")
    assert wrong.troubles == {f"broker {deployment.address}": "failed"}
    deployment.run("user", "add", "ann", "--new-password-file", "ann.txt", "--broker", root)
    ann = deployment.doctor(address=f"tcp://{deployment.address}?user=ann&password_file=ann.txt")
    assert ann.troubles == {"permissions": "warning"}
    (folder / "root.txt").chmod(0o644)
    assert deployment.doctor(address=root).state("mode of the password") == "failed"


def test_a_group_of_brokers_says_what_is_out(deployment: Any, postgres_database: str) -> None:
    record = ("--record", postgres_database)
    deployment.broker(*record, data="a")
    first = deployment.address
    second = deployment.broker_of_a_group(postgres_database, "b")
    both = f"{first},{deployment.address}"

    async def in_sync(count: int) -> None:
        keeper = PostgresRecord(postgres_database, cluster="default", group="g1")
        async with asyncio.timeout(60), Producer(both) as producer:
            await producer.create_topic("orders", 1)
            while len((await keeper.read()).in_sync) != count:
                await producer.send(Message(topic="orders", body=b"x"))
        await keeper.aclose()

    asyncio.run(in_sync(2))
    assert deployment.doctor(*record, address=both).troubles == {}
    unnamed = deployment.doctor(*record, address=first)
    assert unnamed.troubles == {f"replica {deployment.address}": "warning"}
    second.kill()
    second.communicate()
    asyncio.run(in_sync(1))
    out = deployment.doctor(*record, address=both)
    assert out.troubles == {
        f"broker {deployment.address}": "warning", f"replica {deployment.address}": "warning", "in sync": "warning",
    }  # fmt: skip
    strict = deployment.doctor(
        *record,
        "--set",
        "group.min_in_sync=2",
        "--set",
        f"group.record={postgres_database}",
        address=both,
    )
    assert strict.state("in sync") == "failed"
    other = deployment.doctor(*record, "--group", "other", address=both)
    assert other.state("record of the group") == "failed"
