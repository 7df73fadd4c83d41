"""Records in files that tasks read, of which one batch is in memory, and the folder for them."""

import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from headrace.spark.executor.fold import BASE, VERSION, Record, records_to_arrow
from headrace.spark.result import disk
from headrace.spark.result.disk import read_stored, shared_folder, store


def batch(kind: str, *keys: str) -> pa.RecordBatch:
    return records_to_arrow([Record.known(kind, key, data=b"x" * 1_000) for key in keys])


async def each(*batches: pa.RecordBatch) -> AsyncIterator[tuple[str, pa.RecordBatch]]:
    for one in batches:
        yield one["kind"][0].as_py(), one


async def test_files_are_of_one_kind_and_not_large_and_tasks_read_what_was_stored(
    tmp_path: Path, make_plan: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_FILE_BYTES", 2_000)
    batches = [batch(BASE, *"ab"), batch(BASE, "c"), batch(BASE, "d"), batch(VERSION, "e")]
    stored = await store(str(tmp_path), each(*batches))
    assert [kind for kind, _ in stored.shares] == [BASE, BASE, VERSION]
    assert stored.of(VERSION) == stored.shares[2:]
    places = iter([pa.RecordBatch.from_pydict({"id": [place]}) for place in (2, 0, 1)])
    found = list(read_stored(stored, make_plan("accounts", ()), places))
    assert found == [batches[3], *batches[:3]]


async def test_without_records_there_is_no_file(tmp_path: Path) -> None:
    assert (await store(str(tmp_path), each())).shares == ()


async def test_however_many_batches_are_stored_few_of_them_are_in_memory(tmp_path: Path) -> None:
    alive: set[int] = set()
    most = 0

    async def many() -> AsyncIterator[tuple[str, pa.RecordBatch]]:
        nonlocal most
        for number in range(50):
            one = batch(BASE, f"a{number}")
            alive.add(number)
            weakref.finalize(one, alive.discard, number)
            most = max(most, len(alive))
            yield BASE, one
            del one

    await store(str(tmp_path), many())
    assert most <= 2


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_a_session_on_this_machine_has_a_folder_in_its_own_which_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, master: str
) -> None:
    monkeypatch.setattr(disk.SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    with shared_folder(session) as folder:
        assert folder is not None
        assert Path(folder).parent == tmp_path
        (Path(folder) / "left").touch()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "session",
    [SimpleNamespace(), SimpleNamespace(sparkContext=SimpleNamespace(master="spark://host:7077"))],
)
def test_tasks_that_may_be_elsewhere_have_no_folder_with_the_driver(session: Any) -> None:
    with shared_folder(session) as folder:
        assert folder is None
