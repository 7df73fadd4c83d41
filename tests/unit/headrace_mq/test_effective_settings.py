"""The settings of a broker that runs name their source, and hold no secret."""

from pathlib import Path

import pytest

from headrace_mq.effective_settings import described, without_secrets
from headrace_mq.protocol.limits import SettingDescription
from headrace_mq.settings import ArchiveSettings, BrokerSettings, GroupSettings, StoreSettings


def by_name(settings: BrokerSettings, **sources: str) -> dict[str, SettingDescription]:
    answer = described(settings, {name.replace("__", "."): one for name, one in sources.items()})
    return {one.name: one for one in answer.settings}


def test_each_setting_has_its_value_its_default_and_what_gave_it() -> None:
    store = StoreSettings(directory=Path("var/x"), flush="interval")
    found = by_name(
        BrokerSettings(store=store, connections_max=7, login=True), store__flush="--flush"
    )
    assert found["store.flush"] == SettingDescription(
        "store.flush", "interval", "always", "--flush"
    )
    assert found["store.directory"] == SettingDescription("store.directory", "var/x", "", "program")
    assert found["connections_max"].source == "program"
    assert (found["login"].value, found["login"].default) == ("true", "false")
    assert found["port"] == SettingDescription("port", "9876", "9876", "default")
    assert found["metrics"].value == "none"


def test_a_part_that_a_broker_has_not_has_no_settings() -> None:
    store = StoreSettings(directory=Path())
    alone = by_name(BrokerSettings(store=store))
    assert {name.partition(".")[0] for name in alone if "." in name} == {"store"}
    assert not {"store", "archive", "group", "names"} & alone.keys()
    group = GroupSettings(record="etcd://h:2379")
    of_group = by_name(BrokerSettings(store=store, group=group))
    assert of_group["group.record"].value == "etcd://h:2379"


def test_every_setting_is_there_once() -> None:
    parts = {"store": StoreSettings, "archive": ArchiveSettings}
    archive = ArchiveSettings(url="postgresql://ann:hunter2@db/archive")
    settings = BrokerSettings(store=StoreSettings(directory=Path()), archive=archive)
    answer = described(settings, {})
    names = [one.name for one in answer.settings]
    assert len(names) == len(set(names))
    for part, kind in parts.items():
        assert {f"{part}.{name}" for name in kind.__struct_fields__} <= set(names)
    assert {*BrokerSettings.__struct_fields__} - {*names} == {"store", "archive", "group", "names"}
    assert "hunter2" not in str(answer)
    assert "postgresql://db/archive" in str(answer)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("always", "always"),
        ("h:1,h:2", "h:1,h:2"),
        ("postgresql://ann@db/x", "postgresql://db/x"),
        ("postgresql://ann:se?cr@et@db/x", "postgresql://…"),
        ("postgresql://ann:se/cr@et@db/x?sslmode=off", "postgresql://db/x"),
        ("postgresql://db/x?user=ann&password=se@cret", "postgresql://…"),
        ("host=db password=hunter2 dbname=x", "…"),
        ("host=db PASSWORD = 'hunter 2'", "…"),
        ("passwd=hunter2", "…"),
        ("tls://h:1,h:2?ca=ca.pem&user=ann&password_file=p.txt", "tls://h:1,h:2"),
    ],
)
def test_no_part_of_a_password_is_shown(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
