"""Personal fields to ciphertext and back."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.message import AggregateId, Command
from headrace.errors import SerializationError, SubjectKeysAway, SubjectKeysError
from headrace.subjects.cipher import SEALED, FieldCipher, never_opened
from headrace.subjects.keys import SUBJECT_MAX, MemoryKeys
from headrace.subjects.personal import Personal

PERSONAL = {"email": Personal(subject="customer_id")}

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def sealed(cipher: FieldCipher, value: Any = "ann@example.org", subject: Any = "c-1") -> Any:
    return cipher.seal("Registered", PERSONAL, {"customer_id": subject, "email": value, "plan": 1})


@given(values, st.text(min_size=1))
def test_what_is_sealed_opens_as_it_was_until_its_subject_is_forgotten(value: Any, subject: str):
    keys = MemoryKeys()
    made = msgspec.json.decode(msgspec.json.encode(sealed(FieldCipher(keys), value, subject)))
    plain = {"customer_id": subject, "email": value, "plan": 1}
    assert FieldCipher(keys).unseal("Registered", made) == plain
    keys.forget(subject)
    assert FieldCipher(keys).unseal("Registered", made) == {**plain, "email": "[forgotten]"}


def test_ciphertext_holds_nothing_readable_and_is_never_the_same():
    cipher = FieldCipher(MemoryKeys())
    one, two = sealed(cipher), sealed(cipher)
    assert b"ann@" not in msgspec.json.encode(one)
    assert one != two


@pytest.mark.parametrize("place", ["name", "field", "subject", "value"])
def test_ciphertext_that_was_moved_or_changed_does_not_open(place: str):
    cipher = FieldCipher(MemoryKeys())
    held = sealed(cipher)["email"][SEALED]
    sealed(cipher, subject="c-2")
    whose, placeholder, value = held
    name = "Other" if place == "name" else "Registered"
    field = "phone" if place == "field" else "email"
    whose = "c-2" if place == "subject" else whose
    value = value[:-4] + "AAAA" if place == "value" else value
    with pytest.raises(SerializationError, match="is not what was stored"):
        cipher.unseal(name, {field: {SEALED: [whose, placeholder, value]}})


def test_a_value_of_a_forgotten_subject_is_not_stored_at_all():
    keys = MemoryKeys()
    keys.forget("c-1")
    assert sealed(FieldCipher(keys))["email"] == {SEALED: ("c-1", "[forgotten]", None)}


@pytest.mark.parametrize("subject", ["", None, [1]])
def test_a_value_without_a_subject_is_refused(subject: Any):
    with pytest.raises(SerializationError, match="must be a text or a number and not empty"):
        sealed(FieldCipher(MemoryKeys()), subject=subject)


class Far(MemoryKeys):
    """Answers for many; fails as a table does where one id is none."""

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {each: self.find(each) for each in subjects}

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if any(len(each) > SUBJECT_MAX or "\0" in each for each in subjects):
            raise SubjectKeysError("none of them was made")
        return {each: self.make(each) for each in subjects}


class Greet(Command):
    greeting_id: AggregateId
    who: str
    email: Annotated[str, Personal(subject="who")]


@pytest.mark.parametrize("who", ["x" * (SUBJECT_MAX + 1), "a\0b"])
async def test_a_subject_that_no_table_holds_fails_its_own_message_alone(who: str):
    cipher = FieldCipher(Far())
    good = [Greet(greeting_id="g", who=f"c-{number}", email="x") for number in range(5)]
    bad = Greet(greeting_id="g", who=who, email="x")
    found = await asyncio.gather(
        *(cipher.make_ahead([each]) for each in (*good, bad, *good)), return_exceptions=True
    )
    assert [type(each) for each in found if each is not None] == [SerializationError]
    assert "has at most 255 characters" in str(found[5])
    with pytest.raises(SerializationError):
        await cipher.make_keys_ahead([who])
    with pytest.raises(SerializationError, match="has at most 255 characters"):
        cipher.seal("Greet", {"email": Personal(subject="who")}, {"who": who, "email": "x"})
    assert sorted(each.subject for each in cipher.keys.subjects()) == [f"c-{n}" for n in range(5)]


@pytest.mark.parametrize("keys", [MemoryKeys, Far])
@pytest.mark.parametrize("whose", [["a", "b"], 1, None, {"a": 1}, True])
def test_a_subject_that_is_no_text_does_not_open(keys: type[MemoryKeys], whose: Any):
    with pytest.raises(SerializationError, match="not what was stored"):
        FieldCipher(keys()).unseal("M", {"email": {SEALED: [whose, "[forgotten]", "AAAA"]}})


@pytest.mark.parametrize("method", ["find", "find_many"])
@pytest.mark.parametrize(
    "error", [SubjectKeysError("not unwrapped"), LookupError("not unwrapped"), ValueError("odd")]
)
def test_a_key_that_cannot_be_read_fails_its_own_message_as_one_that_does_not_decode(
    method: str, error: Exception, monkeypatch: pytest.MonkeyPatch
):
    keys = Far() if method == "find_many" else MemoryKeys()
    data = sealed(FieldCipher(keys))
    raised: list[Exception] = [error]

    def fail(*_: object) -> None:
        raise raised[0]

    monkeypatch.setattr(keys, method, fail)
    with pytest.raises(SerializationError, match=r"M: email cannot be read: (not unwrapped|odd)"):
        FieldCipher(keys).unseal("M", data)
    raised[0] = SubjectKeysAway("no answer")
    with pytest.raises(SubjectKeysAway):
        FieldCipher(keys).unseal("M", data)


def test_a_message_that_looks_sealed_is_refused():
    with pytest.raises(SerializationError, match="reserved"):
        FieldCipher(MemoryKeys()).seal_json("Noted", {}, b'{"data":{"$personal":[]}}')


@pytest.mark.parametrize("keys", [MemoryKeys, Far])
async def test_keys_are_read_ahead_however_a_message_is_written(
    keys: type[MemoryKeys], monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> None:
        raise AssertionError("it is not asked any more")

    store = keys()
    data = sealed(FieldCipher(store))
    bodies = [msgspec.json.encode(data), msgspec.json.format(msgspec.json.encode(data), indent=2)]
    for body in bodies:
        cipher = FieldCipher(store)
        await cipher.find_ahead([body])
        with monkeypatch.context() as patched:
            for method in ("find", "find_many"):
                patched.setattr(store, method, fail, raising=False)
            found = cipher.unseal("Registered", msgspec.json.decode(body))
        assert found == {"customer_id": "c-1", "email": "ann@example.org", "plan": 1}


@pytest.mark.parametrize("key", [b'"$personal"', b'"\\u0024personal"', b'"$personal" '])
def test_a_message_that_is_never_to_be_opened_stays_closed_with_the_key_and_after_forgetting(
    key: bytes,
):
    keys = MemoryKeys()
    cipher = FieldCipher(keys)
    body = msgspec.json.encode({"data": sealed(cipher)}).replace(b'"$personal"', key)
    closed = msgspec.json.decode(never_opened(body))["data"]
    assert closed["customer_id"] == "c-1"
    for _ in range(2):
        with pytest.raises(SerializationError, match="retry what is parked"):
            cipher.unseal("Registered", closed)
        keys.forget("c-1")
