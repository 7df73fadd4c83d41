from pathlib import Path

import pytest

from headrace_mq.broker.files.epoch import KeptBroker, last_epoch, next_epoch
from headrace_mq.broker.files.metadata_file import MetadataFile

NOW_MS = 1_700_000_000_000


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile[KeptBroker]:
    return MetadataFile(tmp_path / "store" / "metadata" / "broker.json", KeptBroker, repair="")


def test_each_start_takes_the_next_number(tmp_path: Path, file: MetadataFile[KeptBroker]) -> None:
    store = tmp_path / "store"
    assert [next_epoch(file, store=store, now_ms=NOW_MS) for _ in range(3)] == [1, 2, 3]


def test_a_lost_epoch_file_of_a_used_store_never_brings_back_an_old_epoch(
    tmp_path: Path, file: MetadataFile[KeptBroker]
) -> None:
    store = tmp_path / "store"
    first = next_epoch(file, store=store, now_ms=NOW_MS)
    (store / "forever").mkdir()
    (store / "forever/00000000000000000000.log").write_bytes(b"messages")
    file.path.unlink()
    second = next_epoch(file, store=store, now_ms=NOW_MS)
    assert second > first
    assert second < 1 << 32
    assert next_epoch(file, store=store, now_ms=NOW_MS) == second + 1


def test_an_empty_store_that_was_just_locked_is_a_first_start(
    tmp_path: Path, file: MetadataFile[KeptBroker]
) -> None:
    store = tmp_path / "store"
    for log in ("forever", "transient"):
        (store / log).mkdir(parents=True)
    (store / "lock").touch()
    assert next_epoch(file, store=store, now_ms=NOW_MS) == 1
    file.path.unlink()
    file.path.parent.rmdir()
    (store / "store.checkpoint").touch()
    assert next_epoch(file, store=store, now_ms=NOW_MS) > 1


def test_no_message_is_above_the_last_epoch(tmp_path: Path, file: MetadataFile[KeptBroker]) -> None:
    assert last_epoch(file, holds_messages=False, now_ms=NOW_MS) == 1
    assert last_epoch(file, holds_messages=True, now_ms=NOW_MS) == NOW_MS // 1_000
    taken = [next_epoch(file, store=tmp_path / "store", now_ms=NOW_MS) for _ in range(3)]
    assert last_epoch(file, holds_messages=True, now_ms=NOW_MS) == taken[-1]


def test_a_broker_that_leaves_its_group_takes_no_epoch_in_which_another_one_led(
    tmp_path: Path, file: MetadataFile[KeptBroker]
) -> None:
    store = tmp_path / "store"
    file.write(KeptBroker(2))
    assert last_epoch(file, holds_messages=True, now_ms=NOW_MS, newest=5) == 5
    assert last_epoch(file, holds_messages=True, now_ms=NOW_MS, newest=1) == 2
    assert next_epoch(file, store=store, now_ms=NOW_MS, newest=5) == 6
    assert next_epoch(file, store=store, now_ms=NOW_MS, newest=5) == 7
