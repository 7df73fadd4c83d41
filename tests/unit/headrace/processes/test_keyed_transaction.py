"""Transactions that lack a key run again."""

from collections.abc import Callable, Collection, Mapping
from itertools import count
from typing import Any

import pytest

from headrace.errors import SubjectKeysAway, SubjectKeysError
from headrace.processes.keyed_transaction import RUNS_MAX, with_keys
from headrace.subjects.cipher import FieldCipher
from headrace.subjects.keys import MemoryKeys, NewSubjects
from headrace.subjects.personal import Personal

PERSONAL = {"email": Personal(subject="who")}


class Locked(MemoryKeys):
    """Keys in a database that a transaction may have locked."""

    def __init__(self) -> None:
        super().__init__()
        self.locked = False

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {each: self._keys[each] for each in subjects if each in self._keys}

    def make(self, subject: str) -> bytes | None:
        if self.locked:
            raise SubjectKeysError("the database is locked")
        return super().make(subject)

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {each: self.make(each) for each in subjects}


class Sealing:
    def __init__(self, keys: Locked | None) -> None:
        self.cipher = None if keys is None else FieldCipher(keys)


class Database:
    """Runs work in transactions that lock everything."""

    def __init__(self, keys: Locked) -> None:
        self._keys = keys
        self.count = 0

    async def transact(self, work: Callable[[Any], Any]) -> Any:
        self._keys.locked = True
        self.count += 1
        try:
            return work(None)
        finally:
            self._keys.locked = False


async def test_keys_that_a_transaction_lacks_are_made_outside_of_it() -> None:
    keys = Locked()
    serializer: Any = Sealing(keys)
    database = Database(keys)

    def work(_: Any) -> list[Any]:
        data = [{"who": who, "email": "x"} for who in ("c-1", "c-2", "c-1")]
        return [serializer.cipher.seal("M", PERSONAL, each) for each in data]

    assert len(await with_keys(database.transact, work, serializer)) == 3
    assert database.count == 2
    assert [each.subject for each in keys.subjects()] == ["c-1", "c-2"]
    await with_keys(database.transact, work, serializer)
    assert database.count == 3


async def test_work_that_lacks_many_keys_runs_twice() -> None:
    keys = Locked()
    serializer: Any = Sealing(keys)
    database = Database(keys)

    def work(_: Any) -> None:
        for number in range(100):
            serializer.cipher.seal("M", PERSONAL, {"who": f"c-{number}", "email": "x"})

    await with_keys(database.transact, work, serializer)
    assert database.count == 2


async def test_work_that_names_other_persons_each_time_fails_at_last() -> None:
    keys = Locked()
    serializer: Any = Sealing(keys)
    database, numbers = Database(keys), count()
    where: list[str] = []

    def work(_: Any) -> str:
        # As a process does with an error of its handler.
        try:
            serializer.cipher.seal("M", PERSONAL, {"who": f"c-{next(numbers)}", "email": "x"})
        except NewSubjects as error:
            where.append(f"{error}")
        return "parked"

    assert await with_keys(database.transact, work, serializer) == "parked"
    assert database.count == RUNS_MAX
    assert len(where) == 1
    assert "depend on its arguments alone" in where[0]


async def test_a_key_that_cannot_be_made_fails_where_the_work_needs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keys = Locked()
    serializer: Any = Sealing(keys)
    database = Database(keys)
    parked: list[str] = []
    error: Exception = SubjectKeysError("the key of 'bad' cannot be unwrapped")

    def make_many(subjects: Collection[str]) -> Mapping[str, bytes | None]:
        raise error

    monkeypatch.setattr(keys, "make_many", make_many)

    def work(_: Any) -> None:
        # As a process does with an error of its handler.
        try:
            serializer.cipher.seal("M", PERSONAL, {"who": "bad", "email": "x"})
        except SubjectKeysError as raised:
            parked.append(f"{raised}")

    await with_keys(database.transact, work, serializer)
    assert parked == ["the key of 'bad' cannot be unwrapped"]
    assert database.count == 2
    error = SubjectKeysAway("no answer")
    with pytest.raises(SubjectKeysAway):
        await with_keys(database.transact, work, serializer)
    assert len(parked) == 1


async def test_an_error_of_the_work_ends_it() -> None:
    keys = Locked()
    serializer: Any = Sealing(keys)

    def work(_: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await with_keys(Database(keys).transact, work, serializer)


async def test_without_personal_fields_there_is_one_transaction() -> None:
    serializer: Any = Sealing(None)
    database = Database(Locked())
    assert await with_keys(database.transact, lambda _: 7, serializer) == 7
    assert database.count == 1
