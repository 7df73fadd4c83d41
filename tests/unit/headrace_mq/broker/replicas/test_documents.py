"""Documents are counted as they change, sent as they are, and replaced as a whole."""

from pathlib import Path

import pytest

from headrace_mq._runtime.files import SystemFiles
from headrace_mq.broker.replicas.bodies import Document
from headrace_mq.broker.replicas.documents import (
    DOCUMENTS,
    Documents,
    WatchedFiles,
    remove_shortcuts,
    store_document,
)
from headrace_mq.errors import DataCorrupt
from headrace_mq.store.segment.checkpoint import read_checkpoint, write_checkpoint

FILES = SystemFiles()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "metadata").mkdir()
    write_checkpoint(FILES, tmp_path / "metadata" / "topics.json", b"one")
    return tmp_path


# Of every group; the archive's only where there is one.
EVERYONES = [name for name in DOCUMENTS if name != "archive.json"]


def test_an_epoch_begins_with_every_document_also_those_that_are_not_there(folder: Path) -> None:
    documents = Documents(folder, FILES)
    documents.begin()
    found = documents.after(0, 1 << 20)
    assert [one.name for one in found] == EVERYONES
    assert {one.name: one.content for one in found if not one.missing} == {"topics.json": b"one"}
    assert found[-1].version == documents.end == documents.durable
    assert documents.after(documents.end, 1 << 20) == []


def test_a_change_is_sent_again_with_a_later_version(folder: Path) -> None:
    documents = Documents(folder, FILES)
    documents.begin()
    before = documents.end
    write_checkpoint(FILES, folder / "metadata" / "topics.json", b"two")
    assert documents.changed(folder / "metadata" / "topics.json")
    assert documents.after(before, 1) == [Document("topics.json", before + 1, b"two")]


def test_files_of_one_disk_are_no_documents(folder: Path) -> None:
    documents = Documents(folder, FILES)
    documents.begin()
    for name in ("metadata/broker.json", "metadata/schedule.json", "other/topics.json", "epochs"):
        assert not documents.changed(folder / name)


def test_large_documents_come_one_after_the_other(folder: Path) -> None:
    write_checkpoint(FILES, folder / "metadata" / "offsets.json", b"x" * 100)
    documents = Documents(folder, FILES)
    documents.begin()
    version, names = 0, []
    while found := documents.after(version, 50):
        names += [one.name for one in found]
        version = found[-1].version
    assert names == EVERYONES


def test_replicas_hear_of_an_archive_once_there_is_one(folder: Path) -> None:
    path = folder / "metadata" / "archive.json"
    documents = Documents(folder, FILES)
    documents.begin()
    before = documents.end
    write_checkpoint(FILES, path, b"mine")
    assert documents.changed(path)
    assert documents.after(before, 1) == [Document("archive.json", before + 1, b"mine")]
    documents.begin()
    assert documents.after(0, 1 << 20)[-1].name == "archive.json"


def test_a_damaged_document_is_not_sent(folder: Path) -> None:
    (folder / "metadata" / "topics.json").write_bytes(b"rubbish")
    documents = Documents(folder, FILES)
    documents.begin()
    with pytest.raises(DataCorrupt):
        documents.after(0, 1 << 20)


def test_a_replica_has_what_the_leader_has(tmp_path: Path) -> None:
    path = tmp_path / "metadata" / "topics.json"
    store_document(FILES, tmp_path, Document("topics.json", 1, b"one"))
    assert read_checkpoint(FILES, path) == b"one"
    store_document(FILES, tmp_path, Document("topics.json", 2, b"", missing=True))
    store_document(FILES, tmp_path, Document("topics.json", 3, b"", missing=True))
    assert not path.exists()


def test_a_leader_cannot_write_other_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no document"):
        store_document(FILES, tmp_path, Document("../broker.json", 1, b""))


def test_shortcuts_of_an_earlier_term_go(folder: Path) -> None:
    for name in ("schedule.json", "transactions.json"):
        (folder / "metadata" / name).write_bytes(b"")
    remove_shortcuts(FILES, folder)
    remove_shortcuts(FILES, folder)
    assert [one.name for one in (folder / "metadata").iterdir()] == ["topics.json"]


def test_watched_files_tell_which_file_was_replaced(tmp_path: Path) -> None:
    told: list[Path] = []
    (tmp_path / "old").write_bytes(b"1")
    WatchedFiles(told.append).rename(tmp_path / "old", tmp_path / "new")
    assert told == [tmp_path / "new"]
    assert (tmp_path / "new").read_bytes() == b"1"
