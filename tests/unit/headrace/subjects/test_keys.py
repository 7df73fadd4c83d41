"""Keys in memory, and those that a process keeps."""

import asyncio
import threading
from collections.abc import Collection, Mapping

import pytest

from headrace.errors import SubjectKeysAway, SubjectKeysError
from headrace.subjects.keys import (
    ASKED_MAX,
    KEPT_MAX,
    KEPT_S,
    KeptKeys,
    LostKey,
    MemoryKeys,
    NewSubjects,
    no_new_keys,
)
from headrace.testing.conformance.subject_keys import SubjectKeysConformance


class TestMemoryKeys(SubjectKeysConformance):
    def make_keys(self) -> MemoryKeys:
        return MemoryKeys()


def test_a_kept_key_is_used_for_a_while_after_it_was_destroyed():
    keys, now = MemoryKeys(), [0.0]
    kept = KeptKeys(keys, lambda: now[0])
    key = kept.make("c-1")
    keys.forget("c-1")
    now[0] = KEPT_S - 0.1
    assert kept.find("c-1") == key
    now[0] = KEPT_S
    assert kept.find("c-1") is None
    assert kept.make("c-1") is None


def test_a_key_is_made_though_it_was_missing_a_moment_ago():
    kept = KeptKeys(MemoryKeys())
    assert kept.find("c-1") is None
    key = kept.make("c-1")
    assert key is not None
    assert kept.find("c-1") == key


def test_a_process_keeps_so_many_keys():
    kept = KeptKeys(MemoryKeys())
    for number in range(KEPT_MAX + 5):
        kept.make(f"c-{number}")
    assert len(kept._kept) == KEPT_MAX


class Far(MemoryKeys):
    """A store that answers for many keys; notes what it is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self.away = False

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if self.away:
            raise SubjectKeysAway("away")
        self.asked.append(list(subjects))
        if "bad" in subjects:
            raise SubjectKeysError("the key of 'bad' cannot be unwrapped")
        known = self._keys.keys() | self._forgotten.keys()
        return {each: self._keys.get(each) for each in subjects if each in known}

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        self.asked.append(list(subjects))
        return {each: self.make(each) for each in subjects}


def test_a_lost_key_is_an_error_where_the_store_knows_who_was_forgotten():
    far = Far()
    kept = KeptKeys(far)
    with pytest.raises(SubjectKeysError, match="no key of 'c-1', and no note"):
        kept.find("c-1")
    far.forget("c-1")
    assert kept.find("c-1") is None
    assert KeptKeys(MemoryKeys()).find("c-1") is None


def test_keys_are_found_all_at_once():
    far = Far()
    names = [f"c-{number}" for number in range(ASKED_MAX + 1)]
    for each in names:
        far.make(each)
    kept = KeptKeys(far)
    kept.find_all([*names, "c-0", "nobody"])
    assert [len(each) for each in far.asked] == [ASKED_MAX, 2]
    assert all(kept.find(each) for each in names)
    assert len(far.asked) == 2
    near = KeptKeys(MemoryKeys())
    assert not near.asks_ahead
    near.find_all(names)


async def test_a_key_that_cannot_be_unwrapped_is_left_to_those_who_need_it():
    names = [*(f"c-{number}" for number in range(300)), "bad", *(f"d-{n}" for n in range(199))]
    far = Far()
    for each in names:
        far.make(each)
    for at_once in (True, False):
        kept = KeptKeys(far)
        far.asked.clear()
        if at_once:
            kept.find_all(names)
        else:
            await kept.ahead(names, make=False)
        # By halves: not one by one.
        assert len(far.asked) < 20
        assert all(kept.find(each) for each in names if each != "bad")
        assert len(far.asked) < 20
        with pytest.raises(SubjectKeysError, match="cannot be unwrapped"):
            kept.find("bad")


def test_an_outage_while_halves_are_asked_is_one():
    far = Far()

    def find_many(subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if len(subjects) == 1:
            raise ConnectionResetError("gone")
        raise SubjectKeysError("one of them cannot be unwrapped")

    far.find_many = find_many  # type: ignore[method-assign]  # for this test alone
    with pytest.raises(SubjectKeysAway):
        KeptKeys(far).find_all(["c-1", "bad"])


async def test_callers_at_one_time_share_requests():
    far = Far()
    kept = KeptKeys(far)
    waits = [kept.ahead([f"c-{number}", "all"], make=True) for number in range(50)]
    await asyncio.gather(*waits)
    assert [len(each) for each in far.asked] == [51]
    assert all(kept.make(f"c-{number}") for number in range(50))
    await kept.ahead(["c-3"], make=True)
    await kept.ahead(["c-3", "c-99"], make=False)
    assert far.asked[1:] == [["c-99"]]


async def test_more_callers_than_a_request_takes_are_served_in_some():
    far = Far()
    kept = KeptKeys(far)
    names = [f"c-{number}" for number in range(ASKED_MAX)]
    await asyncio.gather(kept.ahead(names, make=True), kept.ahead(["d", *names], make=True))
    assert kept.make("d")
    assert max(map(len, far.asked)) <= ASKED_MAX


async def test_an_outage_is_raised_to_those_who_ask_and_over_for_the_next():
    far = Far()
    kept = KeptKeys(far)
    far.make("c-1")
    far.away = True
    found = await asyncio.gather(
        kept.ahead(["c-1"], make=False), kept.ahead(["c-1"], make=False), return_exceptions=True
    )
    assert list(map(type, found)) == [SubjectKeysAway, SubjectKeysAway]
    far.away = False
    await kept.ahead(["c-1"], make=False)
    assert kept.find("c-1")


@pytest.mark.parametrize("many", [True, False])
def test_an_outage_of_any_store_has_one_name(many: bool, monkeypatch: pytest.MonkeyPatch):
    keys = Far() if many else MemoryKeys()
    raised: list[Exception] = []

    def fail(*_: object) -> None:
        raise raised[0]

    for method in ("find", "make", "find_many", "make_many"):
        monkeypatch.setattr(keys, method, fail, raising=False)
    caused = SubjectKeysError("no answer")
    caused.__cause__ = TimeoutError()
    kept = KeptKeys(keys)
    wrapped = RuntimeError("gone, says a client")
    wrapped.__context__ = RuntimeError("pool")
    wrapped.__context__.__cause__ = ConnectionResetError()
    for error in (ConnectionResetError("gone"), caused, SubjectKeysAway("away"), wrapped):
        raised[:] = [error]
        for ask in (kept.find, kept.make):
            with pytest.raises(SubjectKeysAway, match=r"gone|no answer|away"):
                ask("c-1")
    for error in (SubjectKeysError("wrong"), LostKey("lost"), KeyError("odd")):
        raised[:] = [error]
        with pytest.raises(type(error)) as found:
            kept.make("c-1")
        assert found.value is error


def test_each_event_loop_has_its_turn():
    kept = KeptKeys(Far())

    async def both() -> None:
        await asyncio.gather(kept.ahead(["a"], make=True), kept.ahead(["b"], make=True))

    asyncio.run(both())
    asyncio.run(both())


async def test_no_new_key_is_made_within_a_transaction():
    far, now = Far(), [0.0]
    kept = KeptKeys(far, lambda: now[0])
    known = kept.make("c-0")
    made: dict[str, bytes | None] = {}

    def work() -> None:
        with no_new_keys():
            made.update({each: kept.make(each) for each in ("c-0", "c-1", "c-2", "c-1")})
            # What was sealed is opened again within the same transaction.
            assert kept.find("c-1") == made["c-1"]

    with pytest.raises(NewSubjects) as raised:
        work()
    assert raised.value.subjects == {"c-1", "c-2"}
    assert [each.subject for each in far.subjects()] == ["c-0"]
    assert made["c-0"] == known
    await kept.ahead(raised.value.subjects, make=True)
    # However long the transaction has waited for its turn.
    now[0] = KEPT_S + 1
    with no_new_keys(raised.value.subjects):
        found = {each: kept.make(each) for each in ("c-1", "c-2")}
    assert found == {each: far.find(each) for each in ("c-1", "c-2")}
    assert found["c-1"] != made["c-1"]
    assert kept.make("c-3")
    with no_new_keys():
        assert KeptKeys(MemoryKeys()).make("c-1")


def test_a_transaction_that_fails_for_want_of_a_key_names_it():
    kept = KeptKeys(Far())

    def work() -> None:
        with no_new_keys():
            kept.make("c-1")
            raise ValueError("it may come of the key")

    with pytest.raises(NewSubjects):
        work()
    with pytest.raises(ValueError, match="another"), no_new_keys():
        raise ValueError("another")
    with no_new_keys(last=True), pytest.raises(NewSubjects, match="depend on its arguments alone"):
        kept.make("c-1")


class Picky(Far):
    """Refuses a request in which a subject is that it does not like."""

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if "bad" in subjects:
            raise SubjectKeysError("bad is refused")
        return super().make_many(subjects)


@pytest.mark.parametrize("names", [["a", "bad", "b"], ["bad", "a"], ["a", "b", "bad"]])
async def test_a_refused_subject_fails_its_own_caller_alone(names: list[str]):
    kept = KeptKeys(Picky())
    found = await asyncio.gather(
        *(kept.ahead([each], make=True) for each in names), return_exceptions=True
    )
    assert [str(each) for each in found if each is not None] == ["bad is refused"]
    assert found.index(None) != names.index("bad")
    assert isinstance(found[names.index("bad")], SubjectKeysError)


async def test_callers_that_give_up_take_one_thread_in_all():
    go_on, asked = threading.Event(), []

    class Slow(Far):
        def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
            asked.append(set(subjects))
            go_on.wait()
            return super().make_many(subjects)

    kept = KeptKeys(Slow())
    try:
        for number in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.001):
                    await kept.ahead([f"c-{number}"], make=True)
        assert asked == [{"c-0"}]
    finally:
        go_on.set()
    await kept.ahead(["c-5"], make=True)
    # No key is made for those that had not begun.
    assert asked[1:] == [{"c-5"}]
    assert [each.subject for each in kept._keys.subjects()] == ["c-0", "c-5"]
    assert not any(kept._wanted.values())


async def test_what_one_caller_has_given_up_is_asked_for_another():
    far, begun, go_on = Far(), threading.Event(), threading.Event()
    first, kept = far.make_many, KeptKeys(far)

    def make_many(subjects: Collection[str]) -> Mapping[str, bytes | None]:
        begun.set()
        go_on.wait()
        return first(subjects)

    far.make_many = make_many  # type: ignore[method-assign]  # for this test alone

    def start(*names: str) -> asyncio.Task[None]:
        return asyncio.create_task(kept.ahead(names, make=True))

    one = start("c-0")
    while not begun.is_set():
        await asyncio.sleep(0)
    gives_up, other = start("c-1", "c-2"), start("c-2", "c-3")
    await asyncio.sleep(0)
    gives_up.cancel()
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(one, other)
    assert gives_up.cancelled()
    assert [each.subject for each in far.subjects()] == ["c-0", "c-2", "c-3"]


def test_a_store_that_answers_at_once_is_asked_before_messages_are_decoded():
    class Near(MemoryKeys):
        def find(self, subject: str) -> bytes | None:
            if subject == "away":
                raise OSError("stale handle")
            if subject == "damaged":
                raise SubjectKeysError("its file is damaged")
            return super().find(subject)

    near = Near()
    key = near.make("c-1")
    kept = KeptKeys(near)
    # What is wrong with one is said where it is needed.
    kept.find_near(["damaged", "c-1", "c-1"])
    near.forget("c-1")
    assert kept.find("c-1") == key
    with pytest.raises(SubjectKeysAway):
        kept.find_near(["c-2", "away"])
    with pytest.raises(SubjectKeysError, match="damaged"):
        kept.find("damaged")
