"""Alarms on their page and for programs: what fires, silences, and tests; who may change them, and what is noted."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace.alarms.folder import AlarmFolder
from headrace.alarms.settings import AlarmSettings
from headrace.console.problems import Mistake
from headrace.console.verbs.alarm import AlarmVerbs
from headrace.console.verbs.verb import Consequence, values_of
from headrace_mq.admin.client import AdminClient
from headrace_mq.broker.server import Broker
from headrace_mq.errors import NotPermitted
from headrace_mq.settings import BrokerSettings, StoreSettings


@pytest.fixture
def settings(tmp_path: Path) -> AlarmSettings:
    return AlarmSettings.model_validate(
        {
            "folder": tmp_path / "alarms",
            "target": [{"url": "http://127.0.0.1:1/metrics"}],
            "webhook": [{"name": "duty", "url": "http://127.0.0.1:1/"}],
        }
    )


@pytest.fixture
def verbs(settings: AlarmSettings) -> AlarmVerbs:
    return AlarmVerbs(settings)


@pytest.fixture
async def admin(tmp_path: Path) -> AsyncIterator[AdminClient]:
    """A broker that keeps an audit without a login."""
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    async with (
        Broker(BrokerSettings(store=store, port=0, audit=True)) as broker,
        AdminClient(broker.address) as admin,
    ):
        yield admin


class Refusing:
    """A connection of a user who may read the cluster, and change nothing."""

    address = "127.0.0.1:1"

    async def status(self) -> None:
        return

    async def note_change(self, what: str) -> None:
        raise NotPermitted("user 'ann' may not administer cluster")

    async def rules(self) -> None:
        raise NotPermitted("user 'ann' may not administer cluster")


async def run(verbs: AlarmVerbs, admin: Any, name: str, /, **fields: Any) -> Any:
    verb = verbs.verbs[name]
    return await verb.run(admin, values_of(verb, fields))


async def ahead(verbs: AlarmVerbs, admin: Any, name: str, /, **fields: Any) -> Consequence:
    verb = verbs.verbs[name]
    assert verb.look_ahead is not None
    return await verb.look_ahead(admin, values_of(verb, fields))


async def changes(admin: AdminClient) -> list[str]:
    """What the broker's audit has of changes outside of it."""
    return [one.detail for one in await admin.audit(100) if one.action == "note_change"]


SILENCE = {"name": "HeadraceDamage", "for": "2h", "why": "a new disk", "label": "instance=a:1"}


async def test_an_alarm_is_silenced_and_the_silence_ended(verbs, admin, settings) -> None:
    told = await ahead(verbs, admin, "alarms silence", **SILENCE)
    assert "No message is sent about HeadraceDamage with instance=a:1 until" in told.sentences[0]
    made = await run(verbs, admin, "alarms silence", **SILENCE)
    assert (made["by"], made["labels"], made["why"]) == (
        "console",
        {"instance": "a:1"},
        "a new disk",
    )
    (noted,) = await changes(admin)
    assert noted == "what=alarms silence HeadraceDamage instance=a:1 for 2h: a new disk"
    assert (await run(verbs, admin, "alarms silences"))["silences"] == [made]
    assert (await run(verbs, admin, "alarms list"))["silences"] == [made]
    told = await ahead(verbs, admin, "alarms unsilence", id=made["id"])
    assert "console asked for silence: a new disk" in told.sentences
    await run(verbs, admin, "alarms unsilence", id=made["id"])
    assert f"what=alarms unsilence {made['id']} HeadraceDamage" in await changes(admin)
    assert AlarmFolder(settings.folder).silences(0) == []
    gone = await ahead(verbs, admin, "alarms unsilence", id=made["id"])
    assert gone.hindered == "there is no such silence any more"


async def test_a_test_goes_to_all_receivers_and_says_who_failed(verbs, admin) -> None:
    told = await ahead(verbs, admin, "alarms test", name="HeadraceDamage")
    assert "goes to duty. It says that it is a test" in told.sentences[0]
    answer = await run(verbs, admin, "alarms test", name="HeadraceDamage")
    assert answer["receivers"][0]["receiver"] == "duty"
    assert await changes(admin) == ["what=alarms test HeadraceDamage"]
    assert "refused" in verbs.verbs["alarms test"].done({}, answer)


async def test_a_test_without_receivers_cannot_be_done(settings, admin) -> None:
    verbs = AlarmVerbs(settings.model_copy(update={"webhook": ()}))
    told = await ahead(verbs, admin, "alarms test", name="HeadraceDamage")
    assert "names no webhook" in told.hindered


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"name": "Fire"}, "there is no alarm 'Fire'"),
        ({"for": "soon"}, "for: 'soon' is no duration"),
        ({"label": "a"}, "write NAME=VALUE"),
    ],
)
async def test_a_wrong_field_is_a_sentence(verbs, admin, fields, complaint) -> None:
    with pytest.raises(Mistake, match=complaint):
        await run(verbs, admin, "alarms silence", **SILENCE | fields)
    with pytest.raises(Mistake, match=complaint):
        await ahead(verbs, admin, "alarms silence", **SILENCE | fields)


async def test_a_user_who_may_not_administer_changes_no_alarm(verbs, settings) -> None:
    made = AlarmFolder(settings.folder).silence(
        "HeadraceDamage", for_s=9, why="x", by="root", now_s=4e9
    )
    assert (await run(verbs, Refusing(), "alarms list"))["rules"]
    for name, fields in (
        ("alarms silence", SILENCE),
        ("alarms unsilence", {"id": made.id}),
        ("alarms test", {"name": "HeadraceDamage"}),
    ):
        for asked in (run, ahead):
            with pytest.raises(NotPermitted):
                await asked(verbs, Refusing(), name, **fields)
    assert AlarmFolder(settings.folder).silences(4e9) == [made]


async def test_settings_of_processes_are_asked_where_the_file_of_alarms_names_some(
    verbs, admin, tmp_path
) -> None:
    assert verbs.services == {}
    target = {"job": "headrace-run", "url": "http://127.0.0.1:1/metrics"}
    named = AlarmVerbs(AlarmSettings.model_validate({"folder": tmp_path, "target": [target]}))
    verb = named.services["config services"]
    found = await verb.run(admin, values_of(verb, {}))
    assert (found["services"], found["settings"]) == ([], [])
    assert list(found["silent"]) == ["127.0.0.1:1"]
    assert verb.changes is False
