"""The folder of a watcher outlasts it, and only its user can read it."""

import os
import stat
from pathlib import Path

import pytest

from headrace.alarms.folder import SILENCES_MAX, AlarmFolder, WatcherState
from headrace.errors import HeadraceError


@pytest.fixture
def folder(tmp_path: Path) -> AlarmFolder:
    return AlarmFolder(tmp_path / "alarms")


def silence(folder: AlarmFolder, rule: str = "HeadraceBrokerDown", **values):
    return folder.silence(
        rule, **{"for_s": 60, "why": "a new disk", "by": "ann", "now_s": 100} | values
    )


def test_a_state_is_kept_and_read_by_another_process(folder, tmp_path, alarm) -> None:
    assert folder.state() == WatcherState()
    state = WatcherState(looked_s=5.0, alarms=(alarm(instance="a"),))
    folder.keep(state)
    assert AlarmFolder(tmp_path / "alarms").state() == state
    modes = {stat.S_IMODE(one.stat().st_mode) for one in (tmp_path / "alarms").iterdir()}
    assert modes == {0o600}


def test_a_silence_outlasts_a_restart_and_ends_by_itself(folder, tmp_path) -> None:
    made = silence(folder)
    later = AlarmFolder(tmp_path / "alarms")
    assert later.silences(159) == [made]
    assert later.silences(160) == []
    assert (made.by, made.why, made.until_s) == ("ann", "a new disk", 160)


def test_a_silence_is_about_alarms_with_its_labels(folder, alarm) -> None:
    made = silence(folder, labels={"group": "kitchen"})
    assert made.covers(alarm(group="kitchen", instance="a"))
    assert not made.covers(alarm(group="hall"))
    assert not made.covers(alarm("HeadraceDamage", group="kitchen"))


def test_a_silence_is_ended_by_its_id(folder) -> None:
    one, other = silence(folder), silence(folder, for_s=90)
    assert folder.unsilence(one.id, now_s=110) == one
    assert folder.silences(110) == [other]
    with pytest.raises(HeadraceError, match="there is no silence 'abc'"):
        folder.unsilence("abc", now_s=110)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"rule": "Fire"}, "there is no alarm 'Fire'"),
        ({"for_s": 0}, "from 1 s to 30 days"),
        ({"for_s": 31 * 86_400}, "from 1 s to 30 days"),
        ({"why": "  "}, "say why"),
        ({"why": "x" * 501}, "say why"),
    ],
)
def test_a_silence_that_cannot_be_is_a_sentence(folder, values, complaint) -> None:
    with pytest.raises(HeadraceError, match=complaint):
        silence(folder, **values)


def test_there_are_not_more_silences_than_a_person_can_read(folder, monkeypatch) -> None:
    monkeypatch.setattr("headrace.alarms.folder.SILENCES_MAX", 2)
    assert SILENCES_MAX == 500
    for _ in range(2):
        silence(folder)
    with pytest.raises(HeadraceError, match="end some first"):
        silence(folder)


def test_one_process_watches_with_a_folder(folder, tmp_path) -> None:
    other = AlarmFolder(tmp_path / "alarms")
    with folder.watching():
        with pytest.raises(HeadraceError, match="another process watches"), other.watching():
            pass
        silence(other)
    with other.watching():
        pass


def test_a_file_that_is_damaged_is_a_sentence(folder, tmp_path) -> None:
    silence(folder)
    (tmp_path / "alarms" / "silences.json").write_text("{")
    with pytest.raises(HeadraceError, match="move it away"):
        folder.silences(100)


posix = pytest.mark.skipif(
    os.name != "posix", reason="owners and modes of files are those of POSIX"
)


@posix
def test_a_file_that_root_writes_stays_that_of_the_watcher(folder, tmp_path, monkeypatch) -> None:
    silence(folder)
    file = tmp_path / "alarms" / "silences.json"
    file.chmod(0o640)
    given = []
    own = file.stat()
    monkeypatch.setattr("os.geteuid", lambda: own.st_uid + 1)
    monkeypatch.setattr("os.fchown", lambda _, *owner: given.append(owner))
    silence(folder)
    assert (own.st_uid, own.st_gid) in given
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


@posix
def test_another_user_leaves_no_file_that_the_watcher_cannot_read(
    folder, tmp_path, monkeypatch
) -> None:
    made = silence(folder)
    own = (tmp_path / "alarms").stat().st_uid

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("os.geteuid", lambda: own + 1)
    monkeypatch.setattr("os.fchown", refuse)
    with pytest.raises(HeadraceError, match="belongs to another user"):
        silence(folder)
    assert folder.silences(100) == [made]
    assert [one for one in (tmp_path / "alarms").iterdir() if one.suffix == ".part"] == []


def test_a_folder_that_cannot_be_changed_is_a_sentence(folder, tmp_path) -> None:
    (tmp_path / "alarms").write_text("a file")
    with pytest.raises(HeadraceError, match="cannot be changed"):
        silence(folder)
