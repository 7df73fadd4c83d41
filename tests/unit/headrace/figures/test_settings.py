"""Settings of brokers stand next to each other, and differences are marked."""

from types import SimpleNamespace
from typing import Any

import pytest

from headrace.figures.settings import SettingsOfBrokers, chosen, compared, settings_shown
from headrace_mq.admin.client import AdminClient
from headrace_mq.errors import ConnectionLost
from headrace_mq.protocol.limits import SettingDescription
from headrace_mq.testing.embedded import broker


def setting(name: str, value: str, source: str = "default") -> SettingDescription:
    return SettingDescription(name, value, "1", source)


ANSWERS = {
    "a:1": [setting("port", "1", "--port"), setting("frame_ms_max", "5", "HEADRACE_X"), setting("store.flush", "always")],
    "b:2": [setting("port", "2", "--port"), setting("frame_ms_max", "1"), setting("store.flush", "always"), setting("archive.url", "x")],
}  # fmt: skip


def test_brokers_differ_in_what_should_be_the_same() -> None:
    found = {one.name: one for one in compared(ANSWERS)}
    assert {name for name, one in found.items() if one.differs} == {"frame_ms_max", "archive.url"}
    assert [one.source for one in found["frame_ms_max"].brokers] == ["HEADRACE_X", "default"]
    assert [one.broker for one in found["archive.url"].brokers] == ["b:2"]


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("frame_ms_max", "milliseconds"),
        ("busy_poll_us", "microseconds"),
        ("store.segment_bytes", "bytes"),
        ("store.compact_bytes_per_s", "bytes per second"),
        ("client_fetch_bytes", "bytes per second"),
        ("topic_produce_messages", "messages per second"),
        ("audit_per_second_max", "per second"),
        ("address_queues_per_minute", "per minute"),
        ("store.disk_refuse_percent", "%"),
        ("connections_max", ""),
    ],
)
def test_a_setting_has_its_unit(name: str, unit: str) -> None:
    assert [one.unit for one in compared({"a:1": [setting(name, "1")]})] == [unit]


def test_some_settings_are_chosen() -> None:
    found = SettingsOfBrokers(list(ANSWERS), {}, compared(ANSWERS))

    def names(**how: Any) -> list[str]:
        return [one.name for one in chosen(found, **how).settings]

    assert names(given=True) == ["port", "frame_ms_max"]
    assert names(differing=True) == ["frame_ms_max", "archive.url"]
    assert names(search="STORE") == ["store.flush"]
    assert chosen(found, given=True).brokers == ["a:1", "b:2"]


async def test_a_broker_alone_is_asked_over_its_connection() -> None:
    async with broker() as address, AdminClient(address) as admin:
        found = await settings_shown(admin)
    assert (list(found.brokers), found.silent) == ([address], {})
    assert {one.name for one in found.settings if one.differs} == set()
    assert "store.directory" in {one.name for one in found.settings if one.given}


class Answers:
    """A connection to one broker: the second one is away, and says so with its whole address."""

    def __init__(self, address: str, **_: Any) -> None:
        self.address = address

    async def __aenter__(self) -> "Answers":
        if "b:2" in self.address:
            raise ConnectionLost(f"no broker answers at {self.address}: check it")
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def settings(self) -> Any:
        return SimpleNamespace(settings=ANSWERS["a:1"])


async def test_a_broker_that_is_away_is_named_without_its_password_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace_mq.admin.client.AdminClient", Answers)
    admin: Any = SimpleNamespace(address="tcp://a:1,b:2?user=ann&password_file=/run/secret")
    found = await settings_shown(admin)
    assert list(found.brokers) == ["a:1"]
    assert found.silent == {"b:2": "no broker answers at b:2: check it"}
