"""
The list of who was forgotten, in a file that is kept apart from the keys.

A backup of the keys brings back those that were destroyed since. With this list they are destroyed again. A
line of JSON for each subject, as `headrace subject list --forgotten --json` writes them:

    {"subject": "c-1", "forgotten_at": "2026-11-28T10:00:00+00:00"}

Used by the command line.
"""

import os
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import SubjectKeysError
from headrace.subjects.keys import Subject

__all__ = ["note_forgotten", "read_forgotten"]

_FILE_MODE: Final = 0o600


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    subject: str
    forgotten_at: datetime | None


_decode: Final = msgspec.json.Decoder(_Line).decode


def note_forgotten(file: Path, subject: str, moment: datetime) -> None:
    """Adds a subject to a list; durable on return. Makes the file with mode 0600, for its owner alone.

    Raises:
        SubjectKeysError: the file cannot be written.
    """
    line = msgspec.json.encode(_Line(subject, moment)) + b"\n"
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, _FILE_MODE)
        with os.fdopen(descriptor, "r+b") as opened:
            end = opened.seek(0, os.SEEK_END)
            if end:
                # A line that was cut off by a full disk stays a line of its own.
                opened.seek(end - 1)
                line = line if opened.read(1) == b"\n" else b"\n" + line
            opened.write(line)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise SubjectKeysError(
            f"the list of the forgotten {file} cannot be written, so nothing was forgotten: {error}"
        ) from error


def read_forgotten(file: Path) -> list[Subject]:
    """Returns the subjects of a list, each once, in its order.

    Raises:
        SubjectKeysError: the file cannot be read, or a line of it names no forgotten subject.
    """
    try:
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise SubjectKeysError(f"the list of the forgotten cannot be read: {error}") from error
    found: dict[str, Subject] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            one = _decode(line)
        except msgspec.MsgspecError as error:
            raise SubjectKeysError(
                f"line {number} of {file} is not one of a list of the forgotten ({error}); nothing was"
                ' forgotten; a line is {"subject": "ID", "forgotten_at": "MOMENT"}'
            ) from error
        if one.forgotten_at is None:
            raise SubjectKeysError(
                f"line {number} of {file} names {one.subject!r}, who was not forgotten; nothing was"
                " forgotten; write such a list with: headrace subject list --forgotten --json"
            )
        found.setdefault(one.subject, Subject(one.subject, one.forgotten_at))
    return list(found.values())
