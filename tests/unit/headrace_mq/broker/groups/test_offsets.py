from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.broker.files.metadata_file import MetadataFile
from headrace_mq.broker.groups import offsets as subject
from headrace_mq.broker.groups.last_resets import LastReset
from headrace_mq.broker.groups.offsets import NEVER, KeptOffsets, Offsets
from headrace_mq.errors import DataCorrupt, InvalidArgument
from headrace_mq.message import QueueRef

Q0, Q1 = QueueRef("t", 0), QueueRef("t", 1)
ENDS = {Q0: 1_000, Q1: 1_000}


@pytest.fixture
def file(tmp_path: Path) -> MetadataFile[KeptOffsets]:
    return MetadataFile(tmp_path / "offsets.json", KeptOffsets, repair="Move it away.")


def loaded(file: MetadataFile[KeptOffsets], ends: dict[QueueRef, int] = ENDS) -> Offsets:
    offsets = Offsets(file)
    offsets.load(ends)
    return offsets


def flush(offsets: Offsets) -> None:
    changes = offsets.take_changes()
    assert changes is not None
    offsets.write(changes)


def test_a_group_that_never_committed_is_nowhere(file: MetadataFile[KeptOffsets]) -> None:
    assert loaded(file).get("g", Q0) == NEVER


def test_flushed_offsets_are_there_after_a_restart(file: MetadataFile[KeptOffsets]) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 5), (Q1, 0)])
    offsets.commit("other", [(Q0, 7)])
    flush(offsets)
    again = loaded(file)
    assert (again.get("g", Q0), again.get("g", Q1), again.get("other", Q0)) == (5, 0, 7)
    assert again.get("other", Q1) == NEVER


@given(st.lists(st.integers(0, 50), min_size=1))
def test_members_only_ever_move_an_offset_forward(commits: list[int]) -> None:
    offsets = Offsets(MetadataFile(Path("unused"), KeptOffsets, repair=""))
    for count, offset in enumerate(commits, 1):
        offsets.commit("g", [(Q0, offset)])
        assert offsets.get("g", Q0) == max(commits[:count])


def test_administration_may_move_an_offset_back(file: MetadataFile[KeptOffsets]) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 5)])
    offsets.commit("g", [(Q0, 2)], backwards=True)
    assert offsets.get("g", Q0) == 2


def test_only_changes_are_written(file: MetadataFile[KeptOffsets]) -> None:
    offsets = loaded(file)
    flush(offsets)
    assert offsets.take_changes() is None
    offsets.commit("g", [(Q0, 5)])
    flush(offsets)
    offsets.commit("g", [(Q0, 5)])
    offsets.commit("g", [(Q0, 4)])
    assert offsets.take_changes() is None


def test_a_failed_write_is_repeated_with_the_next_one(
    file: MetadataFile[KeptOffsets], monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 5)])

    def fails(_content: bytes) -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(file, "write_encoded", fails)
        with pytest.raises(OSError, match="no"):
            flush(offsets)
    flush(offsets)
    assert loaded(file).get("g", Q0) == 5


def test_an_offset_beyond_the_end_is_put_back_to_it(file: MetadataFile[KeptOffsets]) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 900), (Q1, 10)])
    flush(offsets)
    again = loaded(file, {Q0: 100, Q1: 1_000})
    assert (again.get("g", Q0), again.get("g", Q1)) == (100, 10)


def test_a_damaged_file_is_an_error_and_not_a_fresh_start(file: MetadataFile[KeptOffsets]) -> None:
    flush(loaded(file))
    file.path.write_bytes(file.path.read_bytes()[:-1])
    with pytest.raises(DataCorrupt, match="Move it away"):
        loaded(file)


def test_too_many_offsets_are_refused_as_a_whole(
    file: MetadataFile[KeptOffsets], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "OFFSETS_MAX", 2)
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 1)])
    with pytest.raises(InvalidArgument, match="fewer groups"):
        offsets.commit("h", [(Q0, 1), (Q1, 1)])
    assert offsets.get("h", Q0) == NEVER
    offsets.commit("g", [(Q0, 2), (Q1, 1)])
    assert offsets.get("g", Q1) == 1


def test_the_offset_that_every_group_has_reached_is_the_slowest_groups(
    file: MetadataFile[KeptOffsets],
) -> None:
    offsets = loaded(file)
    assert offsets.consumed(Q0) == 0
    offsets.commit("fast", [(Q0, 9), (Q1, 9)])
    assert (offsets.consumed(Q0), offsets.consumed(Q1)) == (9, 9)
    offsets.commit("slow", [(Q0, 2)])
    assert (offsets.consumed(Q0), offsets.consumed(Q1)) == (2, 9)


def test_the_offsets_of_deleted_queues_are_forgotten_and_make_room(
    file: MetadataFile[KeptOffsets], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "OFFSETS_MAX", 3)
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 5), (Q1, 6)])
    offsets.commit("h", [(Q0, 7)])
    assert sorted(offsets.behind(Q0, 8)) == [("g", 5), ("h", 7)]
    assert offsets.behind(Q0, 7) == [("g", 5)]
    flush(offsets)
    offsets.forget([Q0])
    flush(offsets)
    again = loaded(file)
    assert (again.behind(Q0, 9), again.behind(Q1, 9)) == ([], [("g", 6)])
    offsets.commit("i", [(Q0, 1), (Q1, 1)])


def test_offsets_of_a_queue_that_does_not_exist_are_dropped(
    file: MetadataFile[KeptOffsets],
) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 5), (Q1, 6)])
    flush(offsets)
    again = loaded(file, {Q1: 1_000})
    assert (again.get("g", Q0), again.get("g", Q1)) == (NEVER, 6)
    flush(again)
    assert loaded(file).get("g", Q0) == NEVER


def test_a_group_without_offsets_is_gone(file: MetadataFile[KeptOffsets]) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q1, 6), (Q0, 5)])
    assert list(offsets.of("g").items()) == [(Q0, 5), (Q1, 6)]
    offsets.leave("g", [Q0])
    assert offsets.of("g") == {Q1: 6}
    offsets.leave("g", [Q1])
    offsets.leave("g", [Q1])
    flush(offsets)
    assert file.read() == KeptOffsets({})


def test_waiters_for_the_disk_end_after_the_write_that_holds_their_change(
    file: MetadataFile[KeptOffsets],
) -> None:
    offsets = loaded(file)
    told: list[tuple[str, OSError | None]] = []

    def wait(name: str) -> None:
        offsets.when_durable(lambda error: told.append((name, error)))

    flush(offsets)
    offsets.settle()
    wait("nothing changed")
    assert told == [("nothing changed", None)]
    offsets.commit("g", [(Q0, 5)])
    wait("before")
    flush(offsets)
    wait("during")
    offsets.commit("g", [(Q0, 6)])
    wait("after")
    assert len(told) == 1
    offsets.settle()
    assert told[1:] == [("before", None), ("during", None)]
    flush(offsets)
    failure = OSError("no")
    offsets.settle(failure)
    assert told[3:] == [("after", failure)]


def test_the_last_move_of_a_group_is_there_after_a_restart(file: MetadataFile[KeptOffsets]) -> None:
    offsets = loaded(file)
    offsets.commit("g", [(Q0, 5)])
    offsets.resets.note("g", LastReset(7, "ann", {Q0: (9, 5), Q1: (3, 0)}))
    flush(offsets)
    assert loaded(file).resets.get("g") == LastReset(7, "ann", {Q0: (9, 5), Q1: (3, 0)})
    assert loaded(file, {Q0: 1_000}).resets.get("g") == LastReset(7, "ann", {Q0: (9, 5)})
    offsets.forget([Q0, Q1])
    assert offsets.resets.get("g") is None


def test_a_file_without_moves_is_read(file: MetadataFile[KeptOffsets]) -> None:
    file.write_encoded(b'{"groups": {"g": {"t": {"0": 5}}}}')
    assert loaded(file).get("g", Q0) == 5
