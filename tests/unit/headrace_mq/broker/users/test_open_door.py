"""A broker without a login in whose folder there are users: someone forgot the login."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.replicated_broker import ReplicatedBroker
from headrace_mq.broker.server import Broker
from headrace_mq.broker.users.open_door import (
    group_without_users,
    no_administrator,
    open_door,
)
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import MessageQueueError
from headrace_mq.protocol.access import SetUser
from headrace_mq.settings import BrokerSettings, GroupSettings, StoreSettings
from tests.unit.headrace_mq.broker.test_replicated_broker import Group, LoggedIn


def add_administrator(folder: Path) -> None:
    (folder / "metadata").mkdir(exist_ok=True)
    UserBook(users_file(folder)).change(SetUser("add", "root", admin=1))


def test_a_broker_without_a_login_is_an_open_door_where_there_are_users(tmp_path: Path) -> None:
    file = users_file(tmp_path)
    assert open_door(file, tmp_path, login=False) == ""
    add_administrator(tmp_path)
    assert open_door(file, tmp_path, login=True) == ""
    found = open_door(file, tmp_path, login=False)
    assert str(tmp_path) in found
    assert "start it with --login" in found


def test_a_broker_with_a_login_and_without_an_administrator_makes_no_group(tmp_path: Path) -> None:
    file = users_file(tmp_path)
    assert no_administrator(file, tmp_path, login=False) == ""
    assert f"there is none in {tmp_path}" in no_administrator(file, tmp_path, login=True)
    add_administrator(tmp_path)
    assert no_administrator(file, tmp_path, login=True) == ""


def test_a_broker_with_a_login_does_not_fit_a_group_without_an_administrator(
    tmp_path: Path,
) -> None:
    file = users_file(tmp_path)
    assert group_without_users(file, login=False) == ""
    assert "start it without --login" in group_without_users(file, login=True)
    add_administrator(tmp_path)
    assert group_without_users(file, login=True) == ""


async def test_a_broker_that_runs_alone_says_in_its_log_that_its_door_is_open(
    tmp_path: Path,
) -> None:
    add_administrator(tmp_path)
    with capture_logs() as lines:
        async with Broker(BrokerSettings(store=StoreSettings(directory=tmp_path), port=0)):
            pass
    (said,) = (one for one in lines if one["event"] == "the login is off")
    assert said["log_level"] == "warning"
    assert "start it with --login" in said["reason"]


@pytest.fixture
async def door(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[LoggedIn]:
    group = Group(tmp_path, free_port)
    yield LoggedIn(group, tmp_path)
    for broker in list(group.brokers):
        await group.stop(broker)


async def test_a_broker_without_a_login_does_not_enter_a_group_with_users_and_does_not_start_again(
    door: LoggedIn, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    """It would let everyone in once it leads."""
    door.first_administrator("a")
    await door.add("a")
    settings = BrokerSettings(
        store=StoreSettings(directory=tmp_path / "b", segment_bytes=64 * 1024),
        port=free_port(),
        group=GroupSettings(
            record="postgresql://unused/record", user="root", password_file=door.password
        ),
    )
    forgotten = ReplicatedBroker(settings, record=door.group.record)
    door.group.brokers.append(forgotten)
    with capture_logs() as lines:
        await forgotten.start()
        async with asyncio.timeout(120):
            while not any("start it with --login" in str(one.get("reason")) for one in lines):
                await asyncio.sleep(0)
    record = door.group.record._record
    assert record is not None
    assert len(record.in_sync) == 1
    await door.group.stop(forgotten)
    again = ReplicatedBroker(settings, record=door.group.record)
    door.group.brokers.append(again)
    with pytest.raises(MessageQueueError, match="start it with --login"):
        await again.start()


async def test_a_broker_with_a_login_that_starts_before_the_one_with_the_users_waits_for_it(
    door: LoggedIn,
) -> None:
    """Else it would make the group, in which no one can log in."""
    door.first_administrator("a")
    with capture_logs() as lines:
        await door.add("b")
        async with asyncio.timeout(120):
            while not any("needs an administrator" in str(one.get("reason")) for one in lines):
                await asyncio.sleep(0)
    assert door.group.record._record is None
    await door.add("a")
    await door.group.until_in_sync(2)


class Mixed:
    """A group without a login, to which a broker with one is started."""

    def __init__(self, group: Group, folder: Path, free_port: Callable[[], int]) -> None:
        self.group = group
        password = LoggedIn(group, folder).password
        self._settings = BrokerSettings(
            store=StoreSettings(directory=folder / "b", segment_bytes=64 * 1024),
            port=free_port(),
            group=GroupSettings(
                record="postgresql://unused/record", user="root", password_file=password
            ),
        )

    async def start(self, *, login: bool) -> ReplicatedBroker:
        settings = msgspec.structs.replace(self._settings, login=login)
        broker = ReplicatedBroker(settings, record=self.group.record)
        self.group.brokers.append(broker)
        await broker.start()
        return broker

    async def until_said(self, lines: list[Any], event: str) -> None:
        async with asyncio.timeout(120):
            while not any(
                one["event"] == event and "without --login" in str(one.get("reason"))
                for one in lines
            ):
                await asyncio.sleep(0)


@pytest.fixture
async def mixed(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[Mixed]:
    made = Mixed(Group(tmp_path, free_port), tmp_path, free_port)
    yield made
    for broker in list(made.group.brokers):
        await made.group.stop(broker)


async def test_a_broker_with_a_login_does_not_enter_a_group_without_users(mixed: Mixed) -> None:
    """No client could log in once it leads, and it would end."""
    group = mixed.group
    await group.add("a")
    await group.leader()
    with capture_logs() as lines:
        wrong = await mixed.start(login=True)
        await mixed.until_said(lines, "this broker does not follow its leader now")
    assert len((await group.record.read()).in_sync) == 1
    await group.stop(wrong)
    await mixed.start(login=False)
    await group.until_in_sync(2)


async def test_a_broker_of_a_group_without_users_does_not_lead_once_its_login_is_on(
    mixed: Mixed, tmp_path: Path
) -> None:
    group = mixed.group
    first = await group.add("a")
    await group.leader()
    second = await mixed.start(login=False)
    await group.until_in_sync(2)
    await group.stop(first)
    await group.leader()
    await group.stop(second)
    epoch = (await group.record.read()).epoch
    with capture_logs() as lines:
        again = await mixed.start(login=True)
        await mixed.until_said(lines, "this broker must not lead its group")
    assert not again.failure.done()
    assert (await group.record.read()).epoch == epoch
    await group.stop(again)
    add_administrator(tmp_path / "b")
    again = await mixed.start(login=True)
    async with asyncio.timeout(120):
        while not again.figures().leads:
            await asyncio.sleep(0)
