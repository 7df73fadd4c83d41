"""The first administrator is made in the folder of a broker that does not run."""

from pathlib import Path

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from headrace_mq.broker.files.epoch import next_epoch
from headrace_mq.broker.metadata import broker_file, users_file
from headrace_mq.broker.server import Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import InvalidArgument, MessageQueueError
from headrace_mq.settings import BrokerSettings, StoreSettings

SECRET = SecretStr("pencil")


def test_the_first_administrator_gets_a_folder_and_its_first_start_is_the_first(
    tmp_path: Path,
) -> None:
    data = tmp_path / "var" / "broker"
    entry = add_user(data, "ann", SECRET, roles=["clerks"], admin=True)
    assert (entry.name, entry.admin, entry.roles, entry.password) == ("ann", True, ["clerks"], True)
    book = UserBook(users_file(data))
    book.load()
    assert book.has_admin
    with capture_logs() as logs:
        assert next_epoch(broker_file(data), store=data, now_ms=1 << 40) == 1
    assert logs == []
    assert (data / "metadata" / "users.json").stat().st_mode & 0o077 == 0


def test_a_second_user_leaves_the_starts_as_they_are(tmp_path: Path) -> None:
    add_user(tmp_path, "ann", SECRET, admin=True)
    assert next_epoch(broker_file(tmp_path), store=tmp_path, now_ms=0) == 1
    add_user(tmp_path, "CN=reports", None)
    assert next_epoch(broker_file(tmp_path), store=tmp_path, now_ms=0) == 2
    with pytest.raises(InvalidArgument, match="there is a user 'ann'"):
        add_user(tmp_path, "ann", SECRET)


async def test_a_folder_in_use_stays_as_it_is(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path, segment_bytes=1 << 20, compact_segment_bytes=1 << 20)
    async with Broker(BrokerSettings(store=store, port=0)):
        with pytest.raises(MessageQueueError, match="a broker uses"):
            add_user(tmp_path, "ann", SECRET, admin=True)
    assert not (tmp_path / "metadata" / "users.json").exists()
