"""
Transactions in which a process's handlers run, and their commands are encoded.

A command may need the key of a person who has none yet. On SQLite the keys may be in the database that the
transaction has locked, and a second connection would wait for it in vain. So such a transaction makes no key:
it is rolled back, all keys that it lacked are made, and it runs again. If one cannot be made, the work fails
where it needs a key: so what is at fault is known, and others go on.

Used by the runner of processes and by retries of their instances.
"""

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from sqlalchemy import Connection

from headrace.errors import SubjectKeysAway
from headrace.serialization import Serializer
from headrace.subjects.keys import NewSubjects, no_new_keys

__all__ = ["Transact", "with_keys"]

T = TypeVar("T")
Work = Callable[[Connection], T]
Transact = Callable[[Work[T]], Awaitable[T]]

# Runs of a transaction that lacks keys: the second has them all, unless another process changed meanwhile
# what the handlers see. Handlers that name other persons at each run would never end; they fail in the last.
RUNS_MAX: Final = 5


async def with_keys(transact: Transact[T], work: Work[T], serializer: Serializer) -> T:
    """Runs work in a transaction; again, where it lacked a key.

    Args:
        transact: runs work in a transaction, and commits it.
        work: may encode commands.
        serializer: encodes them.

    Raises:
        SubjectKeysAway: keys cannot be made just now.
        Exception: of `transact` and `work`, which is raised why a key cannot be made.
    """
    cipher = serializer.cipher
    if cipher is None:
        return await transact(work)

    made: frozenset[str] = frozenset()
    run = 0
    why: Exception | None = None

    # Set where the work runs, which may be another thread.
    def without_new_keys(connection: Connection) -> T:
        with no_new_keys(made, last=run == RUNS_MAX, why=why):
            return work(connection)

    while True:
        run += 1
        try:
            return await transact(without_new_keys)
        except NewSubjects as new:
            if run == RUNS_MAX:
                raise
            subjects = new.subjects
        try:
            await cipher.make_keys_ahead(subjects)
        except SubjectKeysAway:
            raise
        except Exception as error:  # noqa: BLE001 - raised where the work needs the key
            run, why = RUNS_MAX - 1, error
        else:
            made |= subjects
