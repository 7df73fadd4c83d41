import importlib
import pkgutil
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headrace_mq import protocol
from headrace_mq.errors import InvalidArgument, MalformedRequest, ResponseCode, error_for
from headrace_mq.message import QUEUES_PER_TOPIC_MAX, QueueRef
from headrace_mq.protocol import bodies
from headrace_mq.protocol.batch import Columns, assign, encode_batch
from headrace_mq.protocol.bodies import (
    Body,
    CommittedOffset,
    ErrorAnswer,
    Fetch,
    FetchAnswer,
    FetchedQueue,
    FetchFrom,
    Hello,
    HelloAnswer,
    LocksAnswer,
    ProduceAnswer,
    Produced,
    QueueLock,
    decode,
    decode_fetch_answer,
    encode,
    encode_fetch_answer,
)
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import FLAG_ANSWER, encode_frame
from headrace_mq.protocol.keys import topics_in_parts

WIRE = (Path(bodies.__file__).parent / "WIRE.md").read_text(encoding="utf-8")
# Bodies stand in several modules; a kind that is not imported would not be tested.
for module in pkgutil.iter_modules(protocol.__path__, f"{protocol.__name__}."):
    importlib.import_module(module.name)
importlib.import_module("headrace_mq.broker.replicas.bodies")
importlib.import_module("headrace_mq.protocol.names.routes")
KINDS = sorted(Body.__subclasses__(), key=lambda kind: kind.__name__)
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def rows(heading: str) -> Iterator[list[str]]:
    """The rows of the table whose header line begins with `heading`."""
    table = WIRE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


# --- encoding and decoding -----------------------------------------------------------------------


SCALARS = {
    int: st.integers(-(2**63), 2**64 - 1),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
}
# Per kind of body, and there are about thirty.
few = hypothesis_settings(max_examples=20, deadline=None)


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that bodies are made of."""
    if get_origin(kind) is list:
        return st.lists(anything(get_args(kind)[0]), max_size=3)
    if get_origin(kind) is dict:
        return st.dictionaries(*map(anything, get_args(kind)), max_size=3)
    if kind in SCALARS:
        return SCALARS[kind]
    hints = get_type_hints(kind)
    return st.builds(kind, *(anything(hints[name]) for name in kind.__struct_fields__))


@kinds
@few
@given(data=st.data())
def test_a_body_comes_back_as_it_was(kind: type[Body], data: st.DataObject) -> None:
    body = data.draw(anything(kind))
    assert decode(kind, encode(body)) == body


@kinds
@few
@given(junk=st.binary(max_size=100))
def test_random_bytes_are_a_body_or_malformed(kind: type[Body], junk: bytes) -> None:
    with suppress(MalformedRequest):
        assert isinstance(decode(kind, junk), kind)


@pytest.mark.parametrize("value", [1 << 64, -(1 << 63) - 1])
def test_a_number_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(InvalidArgument, match="CreateTopic is beyond 64 bits"):
        encode(bodies.CreateTopic(topic="orders", queues=value))


def test_a_text_that_is_no_unicode_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="no Unicode"):
        encode(bodies.CreateTopic(topic="\udcff", queues=1))


@kinds
@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\x94\xa1\xff\xa1\xff\xa1\xff\xa1\xff",
        b"\xdd\xff\xff\xff\xff",
    ],
    ids=["empty", "reserved", "deep", "not UTF-8", "endless"],
)
def test_hostile_bytes_are_malformed(kind: type[Body], junk: bytes) -> None:
    with pytest.raises(MalformedRequest):
        decode(kind, junk)


@kinds
def test_a_field_of_a_newer_version_is_skipped(kind: type[Body]) -> None:
    body = msgspec.convert(example(kind), kind)
    fields = msgspec.msgpack.decode(encode(body))
    assert decode(kind, msgspec.msgpack.encode([*fields, {"new": [1, 2]}])) == body


def example(kind: type[Body]) -> list[Any]:
    samples = {str: "x", int: 1, bool: True, bytes: b"x", list: [], dict: {}}
    hints = get_type_hints(kind)
    found = []
    for name in kind.__struct_fields__:
        hint = get_origin(hints[name]) or hints[name]
        found.append(example(hint) if issubclass(hint, Body) else samples[hint])
    return found


def test_fields_that_an_older_version_did_not_send_have_defaults() -> None:
    assert decode(Hello, msgspec.msgpack.encode(["c", 1, 1])) == Hello("c", 1, 1, "")


@given(st.binary(max_size=50))
def test_a_fetch_answer_splits_into_its_states_and_its_batches(batches: bytes) -> None:
    answer = FetchAnswer([FetchedQueue("t", 0, 3, 9)])
    whole = memoryview(encode_fetch_answer(answer) + batches)
    found, rest = decode_fetch_answer(whole)
    assert found == answer
    assert bytes(rest) == batches


@given(st.binary(max_size=60))
def test_random_bytes_are_a_fetch_answer_or_malformed(junk: bytes) -> None:
    with suppress(MalformedRequest):
        assert isinstance(decode_fetch_answer(memoryview(junk))[0], FetchAnswer)


# --- WIRE.md -------------------------------------------------------------------------------------


def test_wire_md_names_every_request_code() -> None:
    named = {name: int(code) for code, name, *_ in rows("code | request | body | answer")}
    assert named == {code.name: code.value for code in RequestCode}


def test_wire_md_names_only_bodies_that_exist() -> None:
    known = {kind.__name__ for kind in KINDS}
    for _, _, body, answer in rows("code | request | body | answer"):
        words = set(re.findall(r"\b[A-Z][a-z]\w+", body + " " + answer))
        assert words <= known


def test_wire_md_names_every_response_code_and_what_follows_from_it() -> None:
    named = {
        name: (int(code), "fatal" in follows, "again" in follows)
        for code, name, follows, _ in rows("code | answer | | meaning")
    }
    assert named == {
        code.name: (code.value, error_for(code, "").fatal, error_for(code, "").retriable)
        for code in ResponseCode
    }


def test_wire_md_lists_the_fields_of_every_body() -> None:
    def described(kind: type[Body]) -> str:
        hints = get_type_hints(kind)
        words = []
        for name in kind.__struct_fields__:
            item, *_ = get_args(hints[name]) or (None,)
            nested = isinstance(item, type) and issubclass(item, Body)
            words.append(f"{name}: list of {item.__name__}" if nested else name)
        return ", ".join(words)

    assert dict(rows("body | fields")) == {kind.__name__: described(kind) for kind in KINDS}


def test_wire_md_places_the_fields_of_the_batch_without_gaps() -> None:
    places = [
        (int(at), int(size)) for at, size, *_ in rows("at | bytes | field | filled by") if size
    ]
    ends = [at + size for at, size in places]
    assert [at for at, _ in places] == [0, *ends[:-1]]
    assert ends[-1] == 112


def examples() -> dict[str, bytes]:
    batch = encode_batch(
        QueueRef("t", 2),
        Columns(["k"], [], [], [b"hi"], []),
        born_first_ms=1_700_000_000_000,
        producer_id=9,
        first_sequence=4,
    )
    stored = bytearray(batch)
    assign(stored, base_offset=5, position=4_096, appended_at_ms=1_700_000_000_123, epoch=7)
    hello = HelloAnswer("127.0.0.1:9876", 1, 7, 4_259_840, [])
    fetch = Fetch([FetchFrom("t", 2, 5)], 1 << 20, 15_000, "g")
    states = encode_fetch_answer(FetchAnswer([FetchedQueue("t", 2, 0, 6)]))
    refusal = ErrorAnswer("there is no topic 'u'; create it first, or correct the name")
    answered = ProduceAnswer([Produced("t", 2, 5)])
    return {
        "hello": encode_frame(RequestCode.HELLO, 1, encode(Hello("c-1", 1, 1, "example"))),
        "hello answer": encode_frame(0, 1, encode(hello), flags=FLAG_ANSWER),
        "produce": encode_frame(RequestCode.PRODUCE, 2, batch),
        "produce answer": encode_frame(0, 2, encode(answered), flags=FLAG_ANSWER),
        "fetch": encode_frame(RequestCode.FETCH, 3, encode(fetch)),
        "fetch answer": encode_frame(0, 3, states, stored, flags=FLAG_ANSWER),
        "refusal": encode_frame(
            ResponseCode.TOPIC_NOT_FOUND, 4, encode(refusal), flags=FLAG_ANSWER
        ),
    }


def test_wire_md_shows_the_bytes_that_the_code_makes() -> None:
    shown = re.findall(r"```hex ([a-z ]+)\n(.*?)```", WIRE, flags=re.DOTALL)
    assert {name: bytes.fromhex(text) for name, text in shown} == examples()


@given(names=st.lists(st.sampled_from("abcdefghij")))
def test_topics_in_parts_are_all_of_them_once_and_never_too_many(names: list[str]) -> None:
    parts = [*topics_in_parts(names)]
    assert [name for part in parts for name in part] == [*dict.fromkeys(names)]
    assert all(1 <= len(part) * QUEUES_PER_TOPIC_MAX <= 4_096 for part in parts)


def test_a_grant_is_an_array_of_names_numbers_and_epochs() -> None:
    answer = LocksAnswer([QueueLock("t", 1, 300)], 10_000)
    assert encode(answer) == b"\x92\x91\x93\xa1t\x01\xcd\x01\x2c\xcd\x27\x10"
    assert decode(LocksAnswer, encode(answer)) == answer


def test_a_commit_of_a_client_that_knows_no_locks_has_the_epoch_zero() -> None:
    assert decode(CommittedOffset, b"\x93\xa1t\x01\x05") == CommittedOffset("t", 1, 5, 0)
