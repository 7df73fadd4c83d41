"""The store and its archive: opened in this order, and given back together."""

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace_mq._runtime.clock import SystemClock
from headrace_mq._runtime.files import SystemFiles
from headrace_mq.archive.claim import KeptArchive
from headrace_mq.broker.metadata import archive_file
from headrace_mq.broker.storage import Storage
from headrace_mq.errors import DataCorrupt, MessageQueueError
from headrace_mq.settings import BrokerSettings
from headrace_mq.store.replication.epochs import EPOCHS_NAME, EpochFile


@pytest.fixture
def make(settings: Callable[..., BrokerSettings]) -> Callable[[], Storage]:
    return lambda: Storage(settings(), clock=SystemClock(), files=SystemFiles())


async def test_each_start_has_a_greater_epoch_and_the_directory_for_itself(
    make: Callable[[], Storage],
) -> None:
    first = make()
    assert first.open_store().epoch == 1
    await first.open_archive()
    assert first.archive is None
    with pytest.raises(MessageQueueError, match="another broker uses"):
        make().open_store()
    await first.aclose()
    second = make()
    assert second.open_store().epoch == 2
    await second.aclose()
    await make().aclose()


async def test_a_damaged_store_says_what_can_be_done(
    make: Callable[[], Storage], tmp_path: Path
) -> None:
    first = make()
    first.open_store()
    await first.aclose()
    (tmp_path / "store" / "metadata" / "broker.json").write_bytes(b"no")
    with pytest.raises(DataCorrupt, match="headrace store check"):
        make().open_store()


async def test_an_archive_that_is_not_named_is_asked_for(
    make: Callable[[], Storage], tmp_path: Path
) -> None:
    archive_file(tmp_path / "store").write(KeptArchive("a", begun=True))
    storage = make()
    storage.open_store()
    with pytest.raises(MessageQueueError, match="--archive"):
        await storage.open_archive()
    await storage.aclose()


async def test_a_broker_that_was_in_a_group_begins_above_its_epochs_and_forgets_them(
    make: Callable[[], Storage], tmp_path: Path
) -> None:
    first = make()
    assert first.open_store().epoch == 1
    await first.aclose()
    kept = EpochFile(SystemFiles(), tmp_path / "store")
    kept.begin("transient", 3, 0)
    kept.begin("forever", 7, 0)
    again = make()
    assert again.open_store().epoch == 8
    assert not (tmp_path / "store" / EPOCHS_NAME).exists()
    await again.aclose()
