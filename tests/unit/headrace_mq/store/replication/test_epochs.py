"""Two logs are compared by their epochs, and part where the newest epoch of both ends."""

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace_mq.errors import DataCorrupt
from headrace_mq.store.replication.epochs import EPOCHS_NAME, EpochFile, EpochHistory
from headrace_mq.store.segment.checkpoint import write_checkpoint


def history(entries: list[int]) -> EpochHistory:
    """The history of a log whose entries, one byte each, have these epochs."""
    found = EpochHistory()
    for position, epoch in enumerate(entries):
        if epoch != found.last(position):
            found.begin(epoch, position)
    return found


def agreed(one: list[int], other: list[int]) -> int:
    """Where follower and leader part: the follower asks and cuts until nothing is to be cut."""
    mine, theirs = list(one), list(other)
    for _ in range(len(one) + 1):
        last = history(mine).last(len(mine))
        epoch, end = history(theirs).end_of(last, len(theirs))
        at = history(mine).parts_at(len(mine), epoch, end)
        if at == len(mine):
            return at
        del mine[at:]
    raise AssertionError("it never ends")


@given(st.integers(0, 10_000))
def test_logs_agree_below_the_place_where_they_part_and_nowhere_above(seed: int) -> None:
    chosen = random.Random(seed)
    shared = sorted(chosen.choices(range(1, 5), k=chosen.randint(0, 6)))
    low = shared[-1] if shared else 1
    # One leader per epoch: of what each log has alone, no epoch is in both, except that one log may go on with
    # the last common one.
    own = [chosen.choice((low + 2, low + 4)) for _ in range(chosen.randint(0, 4))]
    others = [chosen.choice((low + 1, low + 3, low + 5)) for _ in range(chosen.randint(0, 4))]
    goes_on = [low] * chosen.randint(0, 2) if shared else []
    one, other = shared + sorted(own), shared + goes_on + sorted(others)
    if chosen.random() < 0.5:
        one, other = other, one
    common = 0
    while common < min(len(one), len(other)) and one[common] == other[common]:
        common += 1
    assert agreed(one, other) == common


LOGS = st.integers(0, 2)


@given(
    st.lists(
        st.tuples(LOGS, st.integers(0, 3), st.dictionaries(LOGS, st.integers(0, 9), max_size=2)),
        max_size=9,
    )
)
# The leader of epoch 2 lacks the last one of epoch 1, and that of epoch 3 has it again.
@example([(0, 1, {1: 1}), (0, 1, {}), (1, 1, {}), (0, 1, {})])
def test_a_log_has_what_a_leader_had_up_to_where_its_epoch_ends_and_surely_no_further(
    terms: list[tuple[int, int, dict[int, int]]],
) -> None:
    logs: list[list[tuple[int, int]]] = [[], [], []]
    had: dict[int, list[tuple[int, int]]] = {}
    for epoch, (leader, written, copied) in enumerate(terms, start=1):
        # Any one may lead: of what it lacks, all is lost.
        logs[leader] += [(epoch, number) for number in range(written)]
        had[epoch] = list(logs[leader])
        for to, count in copied.items():
            same = common(logs[to], logs[leader])
            logs[to] = logs[leader][: max(same, min(len(logs[leader]), same + count))]
    for log in logs:
        now = history([epoch for epoch, _ in log])
        for epoch, read in had.items():
            kept = now.common_end(epoch, len(log))
            assert kept <= common(read, log)
            if any(written == epoch for written, _ in log):
                assert kept == common(read, log)


def common(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    at = 0
    while at < min(len(one), len(other)) and one[at] == other[at]:
        at += 1
    return at


def test_logs_that_end_alike_in_different_epochs_part() -> None:
    mine, theirs = EpochHistory([(1, 0), (2, 100)]), EpochHistory([(1, 0), (3, 100)])
    assert theirs.end_of(mine.last(150), 150) == (1, 100)
    assert mine.parts_at(150, 1, 100) == 100


def test_a_log_whose_every_epoch_is_unknown_to_the_other_parts_at_its_beginning() -> None:
    mine, theirs = EpochHistory([(2, 0)]), EpochHistory([(3, 0)])
    assert theirs.end_of(2, 50) == (0, 0)
    assert mine.parts_at(50, 0, 0) == 0


def test_an_epoch_that_wrote_nothing_is_none_of_the_log() -> None:
    log = EpochHistory([(1, 0), (2, 100)])
    assert log.last(100) == 1
    assert log.end_of(9, 100) == (1, 100)
    log.begin(4, 100)
    assert log.starts == [(1, 0), (4, 100)]
    assert log.after(100) == [(4, 100)]
    assert log.after(101) == []


@pytest.mark.parametrize("start", [(2, 200), (1, 200), (3, 99)])
def test_epochs_and_positions_only_grow(start: tuple[int, int]) -> None:
    log = EpochHistory([(1, 0), (2, 100)])
    with pytest.raises(ValueError, match="cannot follow"):
        log.begin(*start)


def test_a_cut_forgets_the_epochs_behind_it() -> None:
    log = EpochHistory([(1, 0), (2, 100), (3, 200)])
    log.cut(150)
    assert log == EpochHistory([(1, 0), (2, 100)])
    assert log != EpochHistory([(1, 0)])
    assert repr(log) == "EpochHistory([(1, 0), (2, 100)])"


def test_an_own_epoch_without_bytes_gives_way_to_the_leaders_bytes(
    tmp_path: Path, files: Any
) -> None:
    kept = EpochFile(files, tmp_path)
    kept.begin("forever", 1, 0)
    kept.begin("forever", 4, 100)
    # The leader of epoch 5 has bytes of epoch 1 beyond the place where this broker began epoch 4.
    kept.take_over("forever", 100, [(5, 300)])
    assert kept.of("forever").last(101) == 1
    kept.take_over("forever", 400, [])
    again = EpochFile(files, tmp_path)
    again.open({"forever": 400})
    assert again.of("forever").starts == [(1, 0), (5, 300)]


def test_a_file_keeps_the_epochs_of_each_log(tmp_path: Path, files: Any) -> None:
    kept = EpochFile(files, tmp_path)
    kept.open({})
    kept.begin("forever", 1, 0)
    kept.begin("transient", 1, 0)
    kept.begin("forever", 3, 500)
    kept.cut("transient", 1)
    again = EpochFile(files, tmp_path)
    again.open({})
    assert again.of("forever").starts == [(1, 0), (3, 500)]
    assert again.of("transient").starts == [(1, 0)]
    assert again.of("compact").starts == []
    # Where the log ends at 500, a crash left an epoch without bytes.
    again.open({"forever": 500})
    kept.open({})
    assert kept.of("forever").starts == [(1, 0)]


def test_a_change_that_the_disk_refuses_is_not_made(tmp_path: Path, files: Any) -> None:
    kept = EpochFile(files, tmp_path)
    kept.begin("forever", 1, 0)
    files.write_error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        kept.begin("forever", 2, 10)
    assert kept.of("forever").starts == [(1, 0)]


def test_logs_from_before_have_one_epoch_all_of_them_or_none(tmp_path: Path, files: Any) -> None:
    kept = EpochFile(files, tmp_path)
    kept.open({"forever": 100, "transient": 50})
    assert not kept.is_there
    files.write_error = OSError(28, "No space left on device")
    with pytest.raises(OSError, match="No space"):
        kept.adopt(7, ["forever", "transient"])
    assert (kept.is_there, kept.of("forever").last(100)) == (False, 0)
    files.write_error = None
    kept.adopt(7, ["forever", "transient"])
    again = EpochFile(files, tmp_path)
    again.open({"forever": 100, "transient": 50})
    assert again.is_there
    assert (again.newest, EpochFile(files, tmp_path / "none").newest) == (7, 0)
    assert [again.of(log).starts for log in ("forever", "transient", "compact")] == [
        [(7, 0)],
        [(7, 0)],
        [],
    ]


@pytest.mark.parametrize("payload", [b"\x00", b"\x81\xa1a\x92\x92\x02\x00\x92\x01\x05"])
def test_a_file_of_something_else_is_damage(tmp_path: Path, files: Any, payload: bytes) -> None:
    write_checkpoint(files, tmp_path / EPOCHS_NAME, payload)
    with pytest.raises(DataCorrupt, match="build this replica again"):
        EpochFile(files, tmp_path).open({})
