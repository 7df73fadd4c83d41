"""
The port of subjects' keys, an adapter in memory, and how long a process keeps a key.

A key store answers at once, because it is asked where a message is encoded or decoded. What is destroyed
stays known as destroyed: a subject never gets a second key. A store that is far away is asked for many
keys ahead, before messages are encoded or decoded. Used by `cipher`.
"""

import asyncio
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, Protocol, runtime_checkable

from headrace.errors import SubjectKeysAway, SubjectKeysError

__all__ = [
    "KEPT_MAX",
    "KEPT_S",
    "KEY_BYTES",
    "SUBJECT_MAX",
    "KeptKeys",
    "KeyWrap",
    "LostKey",
    "ManyKeys",
    "MemoryKeys",
    "NewSubjects",
    "Subject",
    "SubjectKeys",
    "claims_away",
    "is_storable",
    "no_new_keys",
]

# AES-256.
KEY_BYTES: Final = 32
# Characters of a subject's id in a store that answers for many: as many as an aggregate's may have.
SUBJECT_MAX: Final = 255
# Seconds for which a process uses a key without asking again: so long after `forget`, at most, another
# process may still read; asking for every field would cost as much as reading a file.
KEPT_S: Final = 10.0
# Keys that a process keeps: 10,000 subjects that are read in turn, in about 3 MB.
KEPT_MAX: Final = 10_000
# Keys in one request to a store: its answer has some 50 KB.
ASKED_MAX: Final = 500
# Causes of an error that are looked at: clients of services wrap an error a few times.
_CAUSES_MAX: Final = 8


class NewSubjects(SubjectKeysError):
    """Keys cannot be made here and now; make them ahead, and encode again.

    Attributes:
        subjects: whose.
    """

    def __init__(self, subjects: Collection[str]) -> None:
        super().__init__(
            f"there is no key yet of {', '.join(map(repr, islice(subjects, 3)))}; a handler must name the"
            " same persons each time it runs: let it depend on its arguments alone"
        )
        self.subjects = frozenset(subjects)


class LostKey(SubjectKeysError):
    """A key store knows of no key, and of no forgetting."""


def claims_away(error: Exception) -> bool:
    """Whether an error of a key store, or of a service for keys, comes of a connection or a file.

    Clients of services have errors of their own, which an `OSError` has caused.
    """
    if isinstance(error, SubjectKeysError):
        return isinstance(error, SubjectKeysAway) or isinstance(error.__cause__, OSError)
    cause: BaseException | None = error
    for _ in range(_CAUSES_MAX):
        if isinstance(cause, OSError):
            return True
        cause = cause and (cause.__cause__ or cause.__context__)
    return False


def is_storable(subject: str) -> bool:
    """Whether every store of many keys can be asked for a subject; another one is in no table."""
    if len(subject) > SUBJECT_MAX or "\0" in subject:
        return False
    try:
        subject.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def no_new_keys(
    made: Collection[str] = (), *, last: bool = False, why: Exception | None = None
) -> Iterator[None]:
    """Within a transaction that locks a whole database: a store that may be in it makes no key.

    What needs one gets a key that is thrown away, and the block ends with `NewSubjects`, which names all
    of them: what was encoded must not be kept.

    Args:
        made: subjects whose keys were made for this block; they are good for longer than `KEPT_S`.
        last: raise `NewSubjects` at once, where the key is needed.
        why: is raised in place of it: making the keys has failed.

    Raises:
        NewSubjects: keys were needed; in place of any other error, too, which may come of it.
    """
    lack = _Lack(made, last, why)
    before = _lack.set(lack)
    try:
        yield
    except Exception as error:
        if lack.keys:
            raise NewSubjects(lack.keys) from error
        raise
    finally:
        _lack.reset(before)
    if lack.keys:
        raise NewSubjects(lack.keys)


class _Lack:
    """What a block that makes no keys has lacked."""

    def __init__(self, made: Collection[str], last: bool, why: Exception | None) -> None:
        self.made = made
        self._last = last
        self._why = why
        self.keys: dict[str, bytes] = {}

    def key(self, subject: str) -> bytes:
        """Returns a subject's key that is thrown away."""
        if self._last:
            raise self._why or NewSubjects([subject])
        return self.keys.setdefault(subject, secrets.token_bytes(KEY_BYTES))


_lack: ContextVar[_Lack | None] = ContextVar("lack", default=None)


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

    Errors of the place where the keys are leave the methods: a key that cannot be read is not one that was
    destroyed. `OSError` and `SubjectKeysAway` are outages, which are waited for.
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


@runtime_checkable
class ManyKeys(SubjectKeys, Protocol):
    """A key store that answers for many subjects at once, such as a database.

    It knows those without a key from those that were forgotten. So a value whose key was lost is an
    error, and does not look forgotten.
    """

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        """Returns keys by subject; None: destroyed; left out: it never had one here."""
        ...

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        """Returns keys by subject, made durably where there never was one; None: destroyed."""
        ...


class KeyWrap(Protocol):
    """Encrypts keys before they are stored, as a service for keys (KMS) does; may be called by several threads.

    Its errors leave the key store as `SubjectKeysError`. A process asks at most once in `KEPT_S` seconds for
    each subject.
    """

    def wrap(self, subject: str, key: bytes) -> bytes:
        """Returns a key encrypted; bind it to the subject where you can."""
        ...

    def unwrap(self, subject: str, wrapped: bytes) -> bytes:
        """Returns the key of what `wrap` returned."""
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
        self._many = keys if isinstance(keys, ManyKeys) else None
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, bytes | None]] = OrderedDict()
        # How many callers wait for what, by whether keys are made. One request at a time takes all of it.
        self._wanted: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
        self._turn: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    @property
    def asks_ahead(self) -> bool:
        """Whether the store is to be asked ahead, for many keys at once."""
        return self._many is not None

    def find(self, subject: str) -> bytes | None:
        """Returns a subject's key; None: it was destroyed, or the store does not know.

        Raises:
            LostKey: the store knows that the subject has none.
            SubjectKeysAway: the store cannot be asked just now.
            SubjectKeysError: as the store's `find`.
        """
        kept = self._fresh(subject)
        if kept is not None:
            return kept[1]
        lack = _lack.get()
        if lack is not None and subject in lack.keys:
            return lack.keys[subject]
        if self._many is None:
            with _outages():
                return self._keep({subject: self._keys.find(subject)})[subject]
        with _outages():
            found = self._keep(self._many.find_many([subject]))
        if subject not in found:
            raise LostKey(
                f"there is no key of {subject!r}, and no note that it was forgotten: the keys are in"
                " another place, or were lost; name the place or restore them, or forget the subject:"
                " headrace subject forget"
            )
        return found[subject]

    def make(self, subject: str) -> bytes | None:
        """Returns a subject's key, made if need be; None: it was destroyed.

        Raises:
            NewSubjects: this is the last block of `no_new_keys`, and the subject may have none.
        """
        lack = _lack.get()
        known = lack is not None and subject in lack.made
        kept = self._kept.get(subject) if known else self._fresh(subject)
        # A store that is not one of many keys may have been asked before the key was made.
        if kept is not None and (kept[1] is not None or self._many is not None):
            return kept[1]
        if self._many is not None and lack is not None:
            return lack.key(subject)
        with _outages():
            return self._keep({subject: self._keys.make(subject)})[subject]

    def find_all(self, subjects: Iterable[str]) -> None:
        """Asks for many keys at once where the store can; `find` has them for a while then.

        Raises:
            SubjectKeysAway: the store cannot be asked just now; any other error is left to `find`.
        """
        wanted = self._unknown(subjects)
        for first in range(0, len(wanted), ASKED_MAX):
            self._ask(wanted[first : first + ASKED_MAX], make=False)

    def find_near(self, subjects: Iterable[str]) -> None:
        """Asks a store that answers at once for keys, one by one; `find` has them for a while then.

        Raises:
            SubjectKeysAway: the store cannot be asked just now; any other error is left to `find`.
        """
        for each in dict.fromkeys(subjects):
            try:
                self.find(each)
            except SubjectKeysAway:
                raise
            except Exception:  # noqa: BLE001, S112 - raised again where this key is needed
                continue

    async def ahead(self, subjects: Iterable[str], *, make: bool) -> None:
        """Like `find_all`, or makes keys, without holding up the event loop.

        Callers at one time share requests.

        Raises:
            SubjectKeysAway: the store cannot be asked just now.
            SubjectKeysError: a key cannot be made.
        """
        wanted = self._unknown(subjects)
        if not wanted:
            return
        waiting = self._wanted[make]
        waiting.update(wanted)
        lock = self._lock()
        try:
            await lock.acquire()
        finally:
            # Where it gives up, too: no key is made for what is not sent.
            _leave(waiting, wanted)
        # A caller that gives up ends no request, and the next one waits for it: one thread at a time waits
        # for a store that does not answer.
        asking = asyncio.create_task(self._ask_together(wanted, make=make))
        asking.add_done_callback(partial(_asked, lock))
        await asyncio.shield(asking)

    async def _ask_together(self, wanted: list[str], *, make: bool) -> None:
        together = self._wanted[make]
        while wanted := self._unknown(wanted):
            own = wanted[:ASKED_MAX]
            asked = list(dict.fromkeys([*own, *self._unknown(together)]))[:ASKED_MAX]
            for each in asked:
                together.pop(each, None)
            try:
                await asyncio.to_thread(self._ask, asked, make=make)
            except SubjectKeysAway:
                raise
            except Exception:
                if len(asked) == len(own):
                    raise
                # It may be the fault of another caller's subject, which then fails alone, too.
                await asyncio.to_thread(self._ask, own, make=make)
            wanted = wanted[ASKED_MAX:]

    def _lock(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._turn is None or self._turn[0] is not loop:
            self._turn = (loop, asyncio.Lock())
        return self._turn[1]

    def _ask(self, subjects: list[str], *, make: bool) -> None:
        if self._many is None:
            return
        if not make:
            _by_halves(subjects, self._many.find_many, self._keep)
            return
        with _outages():
            self._keep(self._many.make_many(subjects))

    def _unknown(self, subjects: Iterable[str]) -> list[str]:
        if self._many is None:
            return []
        return [each for each in dict.fromkeys(subjects) if self._fresh(each) is None]

    def _fresh(self, subject: str) -> tuple[float, bytes | None] | None:
        kept = self._kept.get(subject)
        return None if kept is None or self._clock() >= kept[0] else kept

    def _keep(self, found: Mapping[str, bytes | None]) -> Mapping[str, bytes | None]:
        until = self._clock() + KEPT_S
        for subject, key in found.items():
            self._kept.pop(subject, None)
            self._kept[subject] = (until, key)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return found


def _by_halves(
    subjects: list[str],
    find: Callable[[Collection[str]], Mapping[str, bytes | None]],
    keep: Callable[[Mapping[str, bytes | None]], object],
) -> None:
    """Finds keys, and leaves out those that fail alone: they fail again where they are needed.

    One bad key of n costs two requests for each halving of n, and the keys of others are not held up by it.
    """
    try:
        with _outages():
            keep(find(subjects))
    except SubjectKeysAway:
        raise
    except Exception:  # noqa: BLE001 - raised again where this key is needed
        if len(subjects) > 1:
            half = len(subjects) // 2
            _by_halves(subjects[:half], find, keep)
            _by_halves(subjects[half:], find, keep)


def _leave(waiting: Counter[str], subjects: Iterable[str]) -> None:
    for each in subjects:
        if waiting[each] > 1:
            waiting[each] -= 1
        else:
            waiting.pop(each, None)


def _asked(lock: asyncio.Lock, asking: asyncio.Task[None]) -> None:
    lock.release()
    if not asking.cancelled():
        # So that an error is known as seen where its caller has given up.
        asking.exception()


@contextmanager
def _outages() -> Iterator[None]:
    """Gives outages of every key store one name, which those who wait for them know."""
    try:
        yield
    except SubjectKeysAway:
        raise
    except Exception as error:
        if not claims_away(error):
            raise
        raise SubjectKeysAway(f"{error}") from error
