"""Transactions that lack a key run again."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pytest

from headrace.errors import SubjectKeysError
from headrace.processes.keyed_transaction import with_keys
from headrace.subjects.cipher import FieldCipher
from headrace.subjects.keys import MemoryKeys
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
    assert database.count == 3
    assert [each.subject for each in keys.subjects()] == ["c-1", "c-2"]
    await with_keys(database.transact, work, serializer)
    assert database.count == 4


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
