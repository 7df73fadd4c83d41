"""
The folder of a watcher: what it knows (`state.json`), and silences (`silences.json`), which commands change.

    watcher ─ writes ─▶ state.json    ◀─ read ─ headrace alarms list, console
    watcher ◀─ reads ── silences.json ◀─ change ─ headrace alarms silence, console

Files, because the watcher must know them while a broker is away, and so that they outlast a restart of either. Only the
user of the process can read them. Used by the watcher, the command line and the console.
"""

import os
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from headrace._runtime.file_lock import take_file_lock
from headrace._runtime.private_files import FILE_MODE, make_folder, open_new
from headrace.alarms.board import RaisedAlarm
from headrace.alarms.outbox import Heard
from headrace.alarms.rules.table import rule_of
from headrace.errors import HeadraceError

__all__ = ["AlarmFolder", "ReceiverState", "Silence", "TargetState", "WatcherState"]

T = TypeVar("T")

# A silence that is forgotten is worse than one that ends too early.
SILENCE_S_MAX: Final = 30 * 86_400
# More of them hide what is wrong.
SILENCES_MAX: Final = 500
WHY_CHARACTERS_MAX: Final = 500
_LOCK_S: Final = 2.0


class Silence(msgspec.Struct, frozen=True):
    """Quiet about a rule for some time.

    Attributes:
        id: names it.
        rule: its name.
        labels: only alarms with these labels are meant; none: all of the rule.
        until_s: when it ends, in seconds since 1970.
        why: the reason.
        by: the user who asked for it.
        made_s: when.
    """

    id: str
    rule: str
    labels: dict[str, str]
    until_s: float
    why: str
    by: str
    made_s: float

    def covers(self, alarm: RaisedAlarm) -> bool:
        """Whether it is about an alarm."""
        return self.rule == alarm.rule and self.labels.items() <= alarm.labels.items()


class TargetState(msgspec.Struct, frozen=True):
    """How a process answered last; the sentence says why it did not."""

    job: str
    instance: str
    up: bool
    sentence: str = ""


class ReceiverState(msgspec.Struct, frozen=True):
    """What a receiver has heard, and how it is reached."""

    heard: dict[str, Heard] = {}
    failures: int = 0
    sentence: str = ""


class WatcherState(msgspec.Struct, frozen=True):
    """What a watcher knows.

    Attributes:
        looked_s: when it looked last, in seconds since 1970; 0: never.
        every_s: how often it looks.
        alarms: those that wait and those that fire, the worst first.
        targets: the processes that it watches.
        receivers: by name.
    """

    looked_s: float = 0.0
    every_s: float = 0.0
    alarms: tuple[RaisedAlarm, ...] = ()
    targets: tuple[TargetState, ...] = ()
    receivers: dict[str, ReceiverState] = {}


class AlarmFolder:
    """The files of a watcher.

    Args:
        path: the folder; it is made when something is written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def state(self) -> WatcherState:
        """Returns what the watcher wrote last; an empty state if it never did.

        Raises:
            HeadraceError: the file cannot be read.
        """
        return self._read("state.json", WatcherState) or WatcherState()

    def keep(self, state: WatcherState) -> None:
        """Writes what the watcher knows. Raises OSError."""
        self._write("state.json", state)

    def silences(self, now_s: float) -> list[Silence]:
        """Returns the silences that hold, the first to end first. Raises as `state`."""
        found = self._read("silences.json", list[Silence]) or []
        return sorted((one for one in found if one.until_s > now_s), key=lambda one: one.until_s)

    def silence(
        self,
        rule: str,
        *,
        for_s: float,
        why: str,
        by: str,
        now_s: float,
        labels: Mapping[str, str] | None = None,
    ) -> Silence:
        """Asks for quiet about a rule; durable.

        Args:
            rule: its name.
            for_s: for how long, in seconds.
            why: the reason, for those who wonder later.
            by: who asks.
            now_s: the time.
            labels: only about alarms with these labels.

        Raises:
            HeadraceError: there is no such rule, a value is out of its range, or there are too many.
        """
        rule_of(rule)
        if not 1 <= for_s <= SILENCE_S_MAX:
            raise HeadraceError(f"a silence lasts from 1 s to {SILENCE_S_MAX // 86_400} days")
        if not 1 <= len(why.strip()) <= WHY_CHARACTERS_MAX:
            raise HeadraceError(
                f"say why in 1 to {WHY_CHARACTERS_MAX} characters: someone will wonder where the alarm is"
            )
        made = Silence(
            secrets.token_hex(4), rule, dict(labels or {}), now_s + for_s, why.strip(), by, now_s
        )
        with self._changing():
            found = self.silences(now_s)
            if len(found) >= SILENCES_MAX:
                raise HeadraceError(f"there are {SILENCES_MAX} silences; end some first")
            self._write("silences.json", [*found, made])
        return made

    def unsilence(self, id_: str, *, now_s: float) -> Silence:
        """Ends a silence.

        Args:
            id_: of the silence.
            now_s: the time.

        Raises:
            HeadraceError: there is none.
        """
        with self._changing():
            found = self.silences(now_s)
            ended = next((one for one in found if one.id == id_), None)
            if ended is None:
                raise HeadraceError(
                    f"there is no silence {id_[:40]!r}; `headrace alarms silences` lists all"
                )
            self._write("silences.json", [one for one in found if one is not ended])
        return ended

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keeps other watchers out of the folder while the block runs.

        Raises:
            HeadraceError: one is at work in it.
        """
        with self._locked("watch.lock", 0.0) as taken:
            if not taken:
                raise HeadraceError(
                    f"another process watches with {self._path}; stop it, or choose another folder"
                )
            yield

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._locked("silences.lock", _LOCK_S) as taken:
            if not taken:
                raise HeadraceError("another command changes the silences; try again")
            try:
                yield
            except OSError as error:
                raise self._refused(error) from error

    @contextmanager
    def _locked(self, name: str, wait_s: float) -> Iterator[bool]:
        try:
            make_folder(self._path)
            file = os.open(self._path / name, os.O_RDWR | os.O_CREAT, FILE_MODE)
        except OSError as error:
            raise self._refused(error) from error
        try:
            self._give(file, self._path / "watch.lock")
            end = time.monotonic() + wait_s
            while not (taken := take_file_lock(file)) and time.monotonic() < end:
                time.sleep(0.01)
            yield taken
        finally:
            os.close(file)

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self._path / name
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError) as error:
            raise HeadraceError(
                f"{path} cannot be read ({error}); move it away, and the watcher makes a new one"
            ) from error

    def _write(self, name: str, value: Any) -> None:
        make_folder(self._path)
        path = self._path / name
        part = path.with_suffix(f".{os.getpid()}.part")
        part.unlink(missing_ok=True)
        try:
            with open_new(part, "xb") as file:
                self._give(file.fileno(), path)
                file.write(msgspec.json.encode(value))
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    def _give(self, file: int, path: Path) -> None:
        """Gives a file to the user of the watcher, with the mode that it had: so it can read what root wrote.

        Raises:
            HeadraceError: another user than that one, or root, writes.
        """
        if os.name != "posix":
            return
        known = next((one for one in (path, self._path / "watch.lock") if one.exists()), None)
        its, own = (known or self._path).stat(), os.geteuid()
        try:
            if known == path:
                os.fchmod(file, stat.S_IMODE(its.st_mode))
            if its.st_uid == own or (known is None and own):
                return
            os.fchown(file, its.st_uid, its.st_gid)
        except OSError as error:
            raise HeadraceError(
                f"{path} belongs to another user (number {its.st_uid}), who could not read it any"
                " more; run this as that user, or as root"
            ) from error

    def _refused(self, error: OSError) -> HeadraceError:
        do = "; run this as the user of the watcher" if isinstance(error, PermissionError) else ""
        return HeadraceError(f"{self._path} cannot be changed: {error.strerror or error}{do}")
