"""What may go of topics kept forever, over starts, other topics of a name, and a store that lost its tail."""

import errno
from pathlib import Path

import pytest

from headrace_mq.broker.metadata import releases_file
from headrace_mq.broker.topics.releases import Releases
from headrace_mq.errors import StoreFull
from headrace_mq.message import QueueRef

QUEUE = QueueRef("t", 1)


def loaded(folder: Path, identity: str = "i-1", end: int = 99) -> Releases:
    releases = Releases(releases_file(folder))
    releases.load({"t": identity}, lambda _: end)
    return releases


def test_a_release_outlives_a_start_and_is_never_taken_back(tmp_path: Path) -> None:
    releases = loaded(tmp_path)
    assert releases.before(QUEUE, "i-1") == 0
    releases.release("t", "i-1", {1: 5})
    releases.release("t", "i-1", {1: 3, 0: 2})
    for each in (releases, loaded(tmp_path)):
        assert (each.before(QUEUE, "i-1"), each.before(QueueRef("t", 0), "i-1")) == (5, 2)
        assert each.before(QueueRef("u", 0), "i-1") == each.before(QueueRef("t", 7), "i-1") == 0


def test_another_topic_of_the_name_has_released_nothing(tmp_path: Path) -> None:
    releases = loaded(tmp_path)
    releases.release("t", "i-1", {1: 5})
    assert releases.before(QUEUE, "i-2") == 0
    again = loaded(tmp_path, identity="i-2")
    assert again.before(QUEUE, "i-2") == again.before(QUEUE, "i-1") == 0
    again.release("t", "i-2", {0: 1})
    assert again.before(QUEUE, "i-2") == 0


def test_a_store_that_lost_its_tail_keeps_what_comes_in_its_place(tmp_path: Path) -> None:
    loaded(tmp_path).release("t", "i-1", {1: 5})
    assert loaded(tmp_path, end=3).before(QUEUE, "i-1") == 3


def test_a_full_disk_releases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    releases = loaded(tmp_path)

    numbers = [errno.ENOSPC, errno.EIO]

    def refuse(_self: object, _value: object) -> None:
        raise OSError(numbers.pop(0), "no")

    monkeypatch.setattr("headrace_mq.broker.files.metadata_file.MetadataFile.write", refuse)
    for error in (StoreFull, OSError):
        with pytest.raises(error):
            releases.release("t", "i-1", {1: 5})
    assert releases.before(QUEUE, "i-1") == 0
