"""Pairs of settings that contradict each other: none among the defaults, each by its own example."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.doctor.contradictions import CLASHES, Clash, DeploymentSettings, contradictions
from headrace.gateway.settings import GatewaySettings
from headrace.settings import Settings
from headrace_mq.settings import ArchiveSettings, BrokerSettings, StoreSettings

Values = dict[str, Any]
TLS: Values = {"tls_certificate": Path("c"), "tls_key": Path("k")}


def deployment(**parts: Values) -> DeploymentSettings:
    """Settings with some values; a part that is not named has its defaults."""
    store = StoreSettings(**{"directory": Path("data"), **parts.get("store", {})})
    archive = ArchiveSettings(**{"url": "postgresql://h/d", **parts.get("archive", {})})
    broker = BrokerSettings(store=store, archive=archive, **parts.get("broker", {}))
    databases = {"event_store": "sqlite:///e.db", "read_models": "sqlite:///r.db"}
    run = Settings(**{"broker": "h:1", **databases, **parts.get("run", {})})
    return DeploymentSettings(broker, run, GatewaySettings(**parts.get("http", {})))


# In the order of `CLASHES`: what makes each of them hold, and nothing else.
EXAMPLES: list[dict[str, Values]] = [
    {"store": {"disk_delete_percent": 90}},
    {"store": {"unconsumed_ms_max": 1_000, "transient_age_ms": 2_000}},
    {"store": {"transient_bytes_max": 1 << 20}},
    {"store": {"flush_interval_ms": 50}},
    {"broker": {"lock_expiry_ms": 30_000}},
    {"broker": {"lock_expiry_ms": 500}},
    {"broker": {"member_expiry_ms": 2_000, "lock_expiry_ms": 500}},
    {"broker": {"throttle_ms_max": 10_000}},
    {"broker": {"connections_per_address_max": 5_000}},
    {"broker": {"connections_before_hello_max": 5_000}},
    {"broker": {"connections_before_hello_per_address_max": 300}},
    {"broker": {"memberships_bytes_per_connection_max": 1 << 30}},
    {"broker": {"requests_bytes_max": 1 << 20}},
    {"broker": {"answers_bytes_max": 1 << 20}},
    {"broker": {"host": "10.0.0.5", "insecure": True}},
    {"broker": {"insecure": True}},
    {"archive": {"alarm_bytes": 1 << 40}},
    {"archive": {"cache_bytes": 1 << 20}},
    {"run": {"retry_ms_min": 9_000}},
    {"run": {"result_timeout_ms": 5_000}},
    {"run": {"commands_in_flight_max": 10}},
    {"run": {"letters_alarm_count": 2_000}},
    {"run": {"letters_alarm_age_ms": 5_000}},
    {"run": {"process_ended_ms": 1_000}},
    {"run": {"event_store": "memory://"}},
    {"run": {"read_models": "sqlite://"}},
    {"run": {"broker": "tls://h:1"}},
    {"broker": {"login": True}},
    {"http": {"streams_max": 500}},
    {"http": {"connections_per_address_max": 2_000}},
    {"http": {"requests_max": 2_000}},
    {"http": {"host": "10.0.0.5", "tokens": Path("t")}},
    {"http": {"host": "10.0.0.5", **TLS}},
    {"http": {"host": "10.0.0.5", "insecure": True, **TLS}},
    {"http": {"insecure": True}},
    {"run": {"metrics": "127.0.0.1:8080"}},
    {"broker": {"metrics": "127.0.0.1:9877", "port": 9877}},
    {"http": {"stop_ms": 25_000}},
]
# Those that cannot hold alone.
TOGETHER = {6: {5}}


def test_every_pair_has_an_example() -> None:
    assert len(EXAMPLES) == len(CLASHES)


def test_the_defaults_do_not_contradict_each_other() -> None:
    (finding,) = contradictions(deployment())
    assert finding.state == "ok"
    assert finding.finding == "no two settings of broker, run, http contradict each other"


@pytest.mark.parametrize("number", range(len(CLASHES)))
def test_an_example_of_a_pair_is_found_and_names_both_settings(number: int) -> None:
    settings, clash = deployment(**EXAMPLES[number]), CLASHES[number]
    found = contradictions(settings)
    assert len(found) == 1 + len(TOGETHER.get(number, ()))
    finding = found[-1]
    assert finding.state == ("failed" if clash.fails else "warning")
    assert clash.one in finding.finding
    assert clash.other in finding.finding
    assert clash.means in finding.finding
    assert finding.advice == clash.advice


@pytest.mark.parametrize("clash", CLASHES)
def test_both_settings_of_a_pair_exist(clash: Clash) -> None:
    settings = deployment()
    for name in (clash.one, clash.other):
        settings.value(name)


def test_nothing_is_said_of_what_was_not_given() -> None:
    assert contradictions(DeploymentSettings()) == []
    alone = DeploymentSettings(
        run=Settings(retry_ms_min=9_000, broker="h:1", event_store="sqlite:///e")
    )
    assert [each.state for each in contradictions(alone)] == ["warning", "warning"]


def test_never_is_no_contradiction() -> None:
    percents = {"disk_delete_percent": 100, "disk_refuse_percent": 90}
    (finding,) = contradictions(deployment(store=percents | {"unconsumed_ms_max": 0}))
    assert finding.state == "ok"


def test_a_gateway_behind_a_proxy_is_no_contradiction() -> None:
    (finding,) = contradictions(deployment(http={"host": "10.0.0.5", "insecure": True}))
    assert finding.state == "ok"


def test_a_cluster_of_kafka_contradicts_no_broker() -> None:
    (finding,) = contradictions(deployment(run={"broker": "kafka://h:1"}, broker={"login": True}))
    assert finding.state == "ok"


@given(one=st.integers(1, 100), other=st.integers(1, 100))
def test_the_shares_of_a_disk_contradict_each_other_where_nothing_is_deleted_before_it_is_full(
    one: int, other: int
) -> None:
    settings = deployment(store={"disk_delete_percent": one, "disk_refuse_percent": other})
    clashes = contradictions(settings)[0].state == "warning"
    assert clashes == (other <= one < 100)


@pytest.mark.parametrize("clash", CLASHES)
def test_a_pair_is_in_the_document(clash: Clash) -> None:
    page = Path(__file__).parents[5] / "docs" / "doctor.md"
    row = f"| `{clash.one}` | `{clash.other}` | {clash.means} |"
    assert row in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("url", ["memory://", "sqlite://", "sqlite:///:memory:"])
def test_an_event_store_in_memory_is_found_however_it_is_written(url: str) -> None:
    (finding,) = contradictions(deployment(run={"event_store": url}))
    assert finding.finding.startswith(f"run.event_store={url} and run.broker=h:1")
    (finding,) = contradictions(deployment(run={"read_models": url}))
    assert finding.finding.startswith(f"run.read_models={url} and run.event_store=")


def test_a_url_that_is_none_is_no_database_in_memory() -> None:
    (finding,) = contradictions(deployment(run={"event_store": "mysql://h/d"}))
    assert finding.state == "ok"


def test_a_finding_hides_the_passwords_of_addresses() -> None:
    database = "postgresql://bank:s3cret@db/bank"
    (finding,) = contradictions(
        deployment(run={"event_store": database, "read_models": "sqlite://"})
    )
    assert "run.event_store=postgresql://bank:***@db/bank:" in finding.finding
    cluster = "kafka://h:1,h:2?sasl.username=u&sasl.password=s3cret"
    (finding,) = contradictions(deployment(run={"event_store": "memory://", "broker": cluster}))
    assert "run.broker=kafka://h:1,h:2:" in finding.finding


def test_an_address_of_name_servers_that_names_files_speaks_tls() -> None:
    names: dict[str, Values] = {"run": {"broker": "nameserver://h:1/c?ca=ca.pem"}}
    assert [one.state for one in contradictions(deployment(**names, broker=TLS))] == ["ok"]
    assert "failed" in [one.state for one in contradictions(deployment(**names))]
