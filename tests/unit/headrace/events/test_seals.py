"""A seal holds for exactly what it was put on, by exactly the store that put it on."""

import json
import pickle
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.stream_body import aggregate_of, origin_of
from headrace.events.seals import Seal
from headrace.stores.database.identity import new_identity
from headrace.testing.conformance.streams import conformance_serializer, rejected, stream

IDENTITY = new_identity()
SEAL = Seal(IDENTITY)
SERIALIZER = conformance_serializer()
BODY = SERIALIZER.encode_stream(stream("a-1", 3, "c-1", text="500"))

values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=6), values, max_size=5))
def test_a_sealed_body_is_intact_and_decodes_as_before(content: dict[str, object]) -> None:
    content |= {"aggregate_id": "a"}
    sealed = SEAL.put_on(msgspec.json.encode(content))
    assert SEAL.broken([sealed]) == []
    found = json.loads(sealed)
    found.pop("seal")
    assert found == {key: each for key, each in content.items() if key != "seal"}


@given(place=st.integers(0, len(SEAL.put_on(BODY)) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_breaks_the_seal(place: int, byte: int) -> None:
    sealed = SEAL.put_on(BODY)
    changed = sealed[:place] + bytes([byte]) + sealed[place + 1 :]
    assert SEAL.broken([changed]) == ([] if changed == sealed else [0])


@given(
    field=st.sampled_from(
        [
            "aggregate_id",
            "aggregate_type",
            "version",
            "command_id",
            "recorded_at",
            "items",
            "events",
        ]
    ),
    value=values,
)
def test_a_changed_field_breaks_the_seal(field: str, value: object) -> None:
    content = json.loads(SEAL.put_on(BODY))
    if value != content[field]:
        content[field] = value
        assert SEAL.broken([msgspec.json.encode(content)]) == [0]


@given(cut=st.integers(0, len(SEAL.put_on(BODY)) - 1), more=st.binary(min_size=1, max_size=20))
def test_a_shorter_or_longer_body_breaks_the_seal(cut: int, more: bytes) -> None:
    sealed = SEAL.put_on(BODY)
    assert SEAL.broken([sealed[:cut], sealed + more, more + sealed]) == [0, 1, 2]


@given(
    broken=st.dictionaries(
        st.integers(0, 1_199), st.sampled_from([b"", b"}", b'"}', BODY, SEAL.put_on(BODY)[1:]])
    )
)
def test_each_broken_seal_of_many_is_found(broken: dict[int, bytes]) -> None:
    sealed = SEAL.put_on(BODY)
    assert SEAL.broken([broken.get(place, sealed) for place in range(1_200)]) == sorted(broken)


def test_a_seal_of_another_body_is_broken() -> None:
    one, other = SEAL.put_on(BODY), SEAL.put_on(SERIALIZER.encode_stream(rejected("a-1", "c-2")))
    moved = one[:-50] + other[-50:]
    assert SEAL.broken([one, moved, other]) == [1]
    assert SEAL.why_broken(moved) == "its seal is of another event"


def test_a_seal_of_another_key_is_broken() -> None:
    guessed = Seal(replace(IDENTITY, seal_key=bytes(32)))
    assert SEAL.broken([guessed.put_on(BODY)]) == [0]


def test_a_broken_seal_has_a_reason() -> None:
    assert SEAL.why_broken(BODY) == "it has no seal"
    assert SEAL.why_broken(b"no JSON") == "it is no event message"
    assert "the seal of another event store" in SEAL.why_broken(Seal(new_identity()).put_on(BODY))


def test_readers_that_know_no_seals_read_what_is_sealed() -> None:
    sealed = SEAL.put_on(BODY)
    assert SERIALIZER.decode_stream(sealed) == SERIALIZER.decode_stream(BODY)
    assert aggregate_of(sealed) == "a-1"
    assert aggregate_of(b"{}") is None
    assert origin_of(sealed) == ("a-1", "c-1")
    assert origin_of(b'{"aggregate_id":"a-1"}') is None


def test_a_seal_travels_to_executors() -> None:
    there = pickle.loads(pickle.dumps(SEAL))
    assert there.broken([SEAL.put_on(BODY), BODY]) == [1]


def test_only_json_objects_are_sealed() -> None:
    with pytest.raises(ValueError, match="JSON objects"):
        SEAL.put_on(b"[1]")
