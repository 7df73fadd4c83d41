"""`headrace store` as a user meets it: what it prints, and its exit statuses."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.files.kept_group import KeptMember
from headrace_mq.broker.metadata import group_file, topics_file
from headrace_mq.broker.topics.kept import KeptTopics
from headrace_mq.message import QueueRef
from headrace_mq.protocol.batch import Columns, decode_records, encode_batch, split_batches
from headrace_mq.settings import StoreSettings
from headrace_mq.store.message_store import MessageStore
from headrace_mq.store.replication.cut import cut_log
from tests.unit.headrace.cli.called import call

ROOT = Path(__file__).parents[5]


def headrace(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return call("store", *map(str, arguments), cwd=ROOT, env={"COLUMNS": "300"})


async def _filled(directory: Path) -> None:
    store = MessageStore(StoreSettings(directory=directory, segment_bytes=1 << 16))
    store.open()
    for number in range(10):
        batch = encode_batch(
            QueueRef("orders", 0),
            Columns([], [], [], [b"x" * 9_000 + b"%d" % number], []),
            born_first_ms=0,
        )
        store.append(batch, retention="forever")
        await store.durable()
    await store.aclose()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A sound store of two segments, with topics."""
    asyncio.run(_filled(tmp_path / "store"))
    topics_file(tmp_path / "store").write(KeptTopics({}))
    return tmp_path / "store"


@pytest.fixture
def in_use(directory: Path) -> Iterator[Path]:
    from headrace_mq._runtime.files import SystemFiles

    files = SystemFiles()
    fd = files.open(directory / "lock")
    assert files.lock(fd)
    yield directory
    files.close(fd)


def spoil(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def read_json(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_a_clean_store_is_called_clean(directory: Path) -> None:
    done = headrace("check", directory)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{directory} is clean" in done.stdout
    assert "forever/00000000000000000000.log" in done.stdout
    answer = read_json(headrace("check", directory, "--json"))
    assert answer["status"] == "clean"
    assert sum(one["records"] for one in answer["files"]) == 10


def test_a_damaged_batch_is_shown_exported_and_left_in_its_place(
    directory: Path, tmp_path: Path
) -> None:
    spoil(directory / "forever/00000000000000000000.log", 4_096 + 5_000)
    done = headrace("check", directory)
    assert done.returncode == 1
    assert "orders/0 from 0: 1" in done.stdout
    assert "headrace store repair" in done.stdout
    assert read_json(headrace("check", directory, "--json"))["status"] == "damaged"

    target = tmp_path / "sound.batches"
    done = headrace("repair", directory, "--export", target)
    # The segment's index is to be moved away, and that was not asked for.
    assert done.returncode == 1
    assert "5 records in 5 batches of 1 damaged segments" in done.stdout
    assert "1 damaged places in segments stay" in done.stdout
    views = split_batches(target.read_bytes())
    assert [r.offset for view in views for r in decode_records(view)] == [1, 2, 3, 4, 5]
    again = headrace("repair", directory, "--export", target)
    assert (again.returncode, "File exists" in again.stderr) == (2, True)


def test_a_damaged_broker_of_a_group_is_to_be_started_in_it(directory: Path) -> None:
    spoil(directory / "forever/00000000000000000000.log", 4_096 + 5_000)
    group_file(directory).write(KeptMember("disk-a"))
    done = headrace("check", directory)
    assert done.returncode == 1
    assert "start it in its group, and it gets damaged messages from another broker" in done.stdout
    assert "headrace store repair" not in done.stdout


def test_a_repair_is_said_first_and_done_with_apply(directory: Path) -> None:
    spoil(directory / "metadata/topics.json", -1)
    planned = headrace("repair", directory)
    assert planned.returncode == 1
    assert "metadata/topics.json -> metadata/topics.json.damaged" in planned.stdout
    assert "--apply does it" in planned.stdout
    assert headrace("check", directory).returncode == 1

    done = headrace("repair", directory, "--apply", "--json")
    assert done.returncode == 0
    assert read_json(done)["status"] == "repaired"
    assert [step["file"] for step in read_json(done)["steps"]] == ["metadata/topics.json"] * 2
    assert headrace("check", directory).returncode == 0
    assert "nothing needs repair" in headrace("repair", directory, "--apply").stdout


@pytest.mark.parametrize("command", ["check", "repair"])
def test_a_running_broker_is_reported_in_one_sentence(in_use: Path, command: str) -> None:
    done = headrace(command, in_use)
    assert (done.returncode, done.stdout) == (2, "")
    assert "a broker runs in" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_directory_without_a_store_is_reported_in_one_sentence(tmp_path: Path) -> None:
    done = headrace("check", tmp_path)
    assert done.returncode == 2
    assert "there is no store in" in done.stderr


def test_a_newer_store_cannot_be_checked(directory: Path) -> None:
    path = directory / "store.checkpoint"
    content = bytearray(path.read_bytes())
    content[8] = 99
    crc = int(google_crc32c.value(bytes(content[:12] + content[16:])))
    content[12:16] = crc.to_bytes(4, "little")
    path.write_bytes(content)
    done = headrace("check", directory)
    assert done.returncode == 2
    assert "the version that wrote it" in done.stdout


def test_messages_that_were_cut_are_shown(directory: Path) -> None:
    assert "no message was cut" in headrace("lost", directory).stdout
    cut_log(
        SystemFiles(), StoreSettings(directory=directory, segment_bytes=1 << 16), "forever", 30_000, keep_from=30_000
    )  # fmt: skip
    shown = headrace("lost", directory)
    assert shown.returncode == 1, shown.stderr
    assert "orders" in shown.stdout
    (file,) = read_json(headrace("lost", directory, "--json"))
    assert file["queues"][0]["queue"] == {"topic": "orders", "queue_id": 0}
    messages = [
        json.loads(line) for line in headrace("lost", directory, "--messages").stdout.splitlines()
    ]
    assert [one["body"][9_000:] for one in messages] == [
        str(n) for n in range(10 - len(messages), 10)
    ]
    assert file["messages"] == len(messages) > 3
    path = directory / "lost" / file["name"]
    spoil(path, 5_000)
    damaged = headrace("lost", directory)
    assert (damaged.returncode, "is damaged from byte 0" in damaged.stderr) == (2, True)
    path.unlink()
    assert headrace("lost", directory).returncode == 0


def test_a_disk_is_tried_and_left_as_it_was(tmp_path: Path) -> None:
    done = headrace("selftest", tmp_path, "--mib", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ok     torn write" in done.stdout
    assert list(tmp_path.iterdir()) == []
    answer = read_json(headrace("selftest", tmp_path, "--mib", "2", "--json"))
    assert answer["status"] in {"passed", "doubtful"}
    assert len(answer["measures"]) == 7


def test_a_size_out_of_range_is_one_sentence(tmp_path: Path) -> None:
    done = headrace("selftest", tmp_path, "--mib", "0")
    assert done.returncode == 2
    assert "the size must be 1 to" in " ".join(done.stderr.split())
