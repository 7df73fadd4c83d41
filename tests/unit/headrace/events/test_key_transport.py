"""Keys are read before messages are handed over."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any

import msgspec
import pytest

from headrace.errors import SerializationError, SubjectKeysAway, SubjectKeysError
from headrace.events.key_transport import KeySubscription, with_keys
from headrace.subjects.cipher import FieldCipher
from headrace.subjects.keys import MemoryKeys
from headrace.subjects.personal import Personal
from headrace.testing.conformance.streams import conformance_serializer
from headrace.transports.base import Outgoing
from headrace.transports.local import LocalTransport

PERSONAL = {"email": Personal(subject="who")}


class Far(MemoryKeys):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[set[str]] = []
        self.away = False
        self.damaged: set[str] = set()
        self.answers: asyncio.Event | None = None

    def find_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        if self.away:
            raise SubjectKeysAway("away")
        self.asked.append(set(subjects))
        if self.damaged & set(subjects):
            raise SubjectKeysError("a key cannot be unwrapped")
        return {each: self.find(each) for each in subjects}

    def make_many(self, subjects: Collection[str]) -> Mapping[str, bytes | None]:
        return {each: self.make(each) for each in subjects}


class Sealing:
    """As much of a serializer as is asked here."""

    def __init__(self, keys: Far) -> None:
        self.cipher = FieldCipher(keys)


@pytest.fixture
def keys() -> Far:
    return Far()


@pytest.fixture
async def transport() -> AsyncIterator[LocalTransport]:
    made = LocalTransport()
    await made.ensure_topic("t", queues=1, forever=True)
    yield made
    await made.aclose()


async def publish(transport: LocalTransport, keys: Far, *subjects: str) -> None:
    writer = FieldCipher(keys)
    for each in subjects:
        data = b'{"who":"%b","email":"x"}' % each.encode()
        body = writer.seal_json("M", PERSONAL, data)
        await transport.publish(Outgoing("t", each, body, "M", {}))


async def polled(subscription: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        found += await subscription.poll()
    return found


async def test_the_keys_of_a_poll_are_read_at_once(transport: LocalTransport, keys: Far) -> None:
    await publish(transport, keys, "c-1", "c-2", "c-1")
    serializer: Any = Sealing(keys)
    subscription = await with_keys(transport, serializer).subscribe("g", ["t"])
    found = await polled(subscription, 3)
    assert set().union(*keys.asked) == {"c-1", "c-2"}
    asked = len(keys.asked)
    assert [serializer.cipher._kept.find(each.key) is not None for each in found] == [True] * 3
    assert len(keys.asked) == asked
    for each in found:
        subscription.ack(each)
    subscription.seek(("t", 0), 1)
    assert [each.key for each in await polled(subscription, 2)] == ["c-2", "c-1"]
    await subscription.aclose()


async def test_messages_wait_while_their_keys_are_away(
    transport: LocalTransport, keys: Far
) -> None:
    await publish(transport, keys, "c-1")
    keys.away = True
    subscription = KeySubscription(await transport.subscribe("g", ["t"]), FieldCipher(keys))
    for _ in range(2):
        with pytest.raises(SubjectKeysAway):
            await subscription.poll()
    keys.away = False
    assert [each.key for each in await subscription.poll()] == ["c-1"]
    keys.away = True
    await publish(transport, keys, "c-2")
    with pytest.raises(SubjectKeysAway):
        await subscription.poll()
    keys.away = False
    subscription.seek(("t", 0), 0)
    assert [each.key for each in await polled(subscription, 2)] == ["c-1", "c-2"]
    await subscription.aclose()


async def test_a_key_that_cannot_be_unwrapped_stops_no_message_of_others(
    transport: LocalTransport, keys: Far
) -> None:
    await publish(transport, keys, "c-1", "c-2", "c-3")
    keys.damaged = {"c-2"}
    cipher = FieldCipher(keys)
    subscription = KeySubscription(await transport.subscribe("g", ["t"]), cipher)
    first, bad, last = await polled(subscription, 3)
    for each in (first, last):
        assert cipher.unseal("M", msgspec.json.decode(each.body))["email"] == "x"
    with pytest.raises(SerializationError, match="email cannot be read: a key cannot be unwrapped"):
        cipher.unseal("M", msgspec.json.decode(bad.body))
    await subscription.aclose()


@pytest.mark.parametrize(
    "subject", [b"\\ud800", b"x" * 256, b"a\\u0000b", b"\xff", b"\\q"], ids=repr
)
async def test_a_malformed_message_is_handed_over_and_fails_alone(
    transport: LocalTransport, keys: Far, subject: bytes
) -> None:
    await publish(transport, keys, "c-1")
    body = b'{"who":"c-1","email":{"$personal":["%b","[forgotten]","AAAA"]}}' % subject
    await transport.publish(Outgoing("t", "bad", body, "M", {}))
    await publish(transport, keys, "c-2")
    cipher = FieldCipher(keys)
    subscription = KeySubscription(await transport.subscribe("g", ["t"]), cipher)
    found = await polled(subscription, 3)
    assert [each.key for each in found] == ["c-1", "bad", "c-2"]
    asked = len(keys.asked)
    for each in (found[0], found[2]):
        assert cipher.unseal("M", msgspec.json.decode(each.body))["email"] == "x"
    with pytest.raises((SerializationError, msgspec.DecodeError, UnicodeDecodeError)):
        cipher.unseal("M", msgspec.json.decode(found[1].body))
    assert len(keys.asked) == asked
    await subscription.aclose()


async def test_an_application_without_personal_fields_has_its_transport(
    transport: LocalTransport,
) -> None:
    assert with_keys(transport, conformance_serializer()) is transport
