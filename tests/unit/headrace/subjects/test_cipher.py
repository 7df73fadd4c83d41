"""Personal fields to ciphertext and back."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SerializationError
from headrace.subjects.cipher import SEALED, FieldCipher
from headrace.subjects.keys import MemoryKeys
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


def test_a_message_that_looks_sealed_is_refused():
    with pytest.raises(SerializationError, match="reserved"):
        FieldCipher(MemoryKeys()).seal_json("Noted", {}, b'{"data":{"$personal":[]}}')
