"""
The port of subjects' keys, an adapter in memory, and how long a process keeps a key.

A key store answers at once, because it is asked where a message is encoded or decoded. What is destroyed
stays known as destroyed: a subject never gets a second key. Used by `cipher`; uses nothing.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

__all__ = ["KEPT_MAX", "KEPT_S", "KEY_BYTES", "KeptKeys", "MemoryKeys", "Subject", "SubjectKeys"]

# AES-256.
KEY_BYTES: Final = 32
# Seconds for which a process uses a key without asking again: so long after `forget`, at most, another
# process may still read; asking for every field would cost as much as reading a file.
KEPT_S: Final = 10.0
# Keys that a process keeps: 10,000 subjects that are read in turn, in about 3 MB.
KEPT_MAX: Final = 10_000


class Subject(NamedTuple):
    """A subject that has, or had, a key.

    Attributes:
        subject: its id.
        forgotten_at: when its key was destroyed, UTC; None: it has its key.
    """

    subject: str
    forgotten_at: datetime | None


class SubjectKeys(Protocol):
    """Keeps a key of `KEY_BYTES` bytes per subject; its methods may be called by several threads.

    Errors of the place where the keys are leave the methods as they are: a key that cannot be read is
    not one that was destroyed.
    """

    def find(self, subject: str) -> bytes | None:
        """Returns a subject's key; None: it has none, or it was destroyed."""
        ...

    def make(self, subject: str) -> bytes | None:
        """Returns a subject's key, made durably if it never had one; None: it was destroyed."""
        ...

    def forget(self, subject: str) -> bool:
        """Destroys a subject's key for ever; returns whether it had one."""
        ...

    def subjects(self) -> Iterable[Subject]:
        """Returns every subject, by id."""
        ...


class MemoryKeys:
    """Keys in memory, for tests: they end with the process."""

    def __init__(self) -> None:
        self._keys: dict[str, bytes] = {}
        self._forgotten: dict[str, datetime] = {}

    def find(self, subject: str) -> bytes | None:
        """Returns a subject's key; see `SubjectKeys`."""
        return self._keys.get(subject)

    def make(self, subject: str) -> bytes | None:
        """Returns a subject's key, a new one if need be; see `SubjectKeys`."""
        if subject in self._forgotten:
            return None
        return self._keys.setdefault(subject, secrets.token_bytes(KEY_BYTES))

    def forget(self, subject: str) -> bool:
        """Destroys a subject's key; see `SubjectKeys`."""
        self._forgotten.setdefault(subject, datetime.now(UTC))
        return self._keys.pop(subject, None) is not None

    def subjects(self) -> list[Subject]:
        """Returns every subject; see `SubjectKeys`."""
        held = [Subject(each, None) for each in self._keys]
        return sorted(held + [Subject(*each) for each in self._forgotten.items()])


class KeptKeys:
    """Keys of a store that a process has used a moment ago.

    Args:
        keys: the store.
        clock: the time in seconds.
    """

    def __init__(self, keys: SubjectKeys, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = keys
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()

    def find(self, subject: str) -> bytes | None:
        """Returns a subject's key; None: it has none."""
        return self._get(subject, self._keys.find)

    def make(self, subject: str) -> bytes | None:
        """Returns a subject's key, made if need be; None: it was destroyed."""
        key = self._get(subject, self._keys.make)
        if key is None:  # It may have been looked for before it was made.
            self._kept.pop(subject, None)
            key = self._get(subject, self._keys.make)
        return key

    def _get(self, subject: str, ask: Callable[[str], bytes | None]) -> bytes | None:
        now = self._clock()
        kept = self._kept.get(subject)
        if kept is not None and now < kept[0]:
            return kept[1]
        key = ask(subject)
        self._kept[subject] = (now + KEPT_S, key)
        self._kept.move_to_end(subject)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return key
