"""What is believed, what is looked up, and what is told of the rest."""

from collections.abc import Collection

import pytest
from structlog.testing import capture_logs

from headrace.domain.stream import EventStream
from headrace.errors import DamagedStream, SerializationError, UnknownMessageType
from headrace.events import belief as module
from headrace.events.belief import Belief
from headrace.events.publisher import HEARTBEAT
from headrace.events.seals import Seal
from headrace.stores.base import StoredByCommand
from headrace.stores.database.identity import new_identity
from headrace.stores.memory.store import MemoryEventStore
from headrace.testing.conformance.streams import conformance_serializer, rejected, stream
from headrace.transports.base import DAMAGED, Incoming

SERIALIZER = conformance_serializer()
QUEUE = ("app.events", 0)
SEAL = Seal(new_identity())


class Looked:
    """A store that remembers what it was asked for."""

    def __init__(self) -> None:
        self.store = MemoryEventStore()
        self.asked: list[int] = []

    async def find(self, commands: Collection[tuple[str, str]]) -> StoredByCommand:
        self.asked.append(len(commands))
        return await self.store.find_stored(commands)


@pytest.fixture
def looked() -> Looked:
    return Looked()


@pytest.fixture
def belief(looked: Looked) -> Belief:
    return Belief(seal=SEAL, find=looked.find, serializer=SERIALIZER)


def body_of(one: EventStream) -> bytes:
    return SERIALIZER.encode_stream(one)


def incoming(offset: int, body: bytes, key: str = "a") -> Incoming:
    return Incoming(QUEUE, offset, key, "Notebook", {"kind": "events"}, body)


async def test_a_damage_marker_is_skipped_and_is_not_foreign(belief: Belief) -> None:
    headers = {"kind": "rejection", DAMAGED: "3"}
    (found,) = await belief.sift([Incoming(QUEUE, 5, "", "", headers, b"")])
    assert (found.tag, found.headers["kind"], found.headers[DAMAGED]) == (
        HEARTBEAT,
        "rejection",
        "3",
    )
    assert belief.foreign == 0
    # With a body it is what somebody wrote.
    await belief.sift([Incoming(QUEUE, 6, "", "", headers, b"forged")])
    assert belief.foreign == 1


async def test_a_sealed_message_is_genuine_without_a_query(belief: Belief, looked: Looked) -> None:
    messages = [incoming(n, SEAL.put_on(body_of(stream("a", n)))) for n in range(1, 4)]
    assert await belief.sift(messages) == messages
    assert (looked.asked, belief.foreign) == ([], 0)


async def test_a_message_without_a_seal_is_genuine_if_the_store_holds_exactly_this_stream(
    belief: Belief, looked: Looked
) -> None:
    await looked.store.append([stream("a", 1), rejected("a", "no"), stream("b", 1)])
    messages = [
        incoming(0, body_of(stream("a", 1))),
        incoming(1, body_of(rejected("a", "no"))),
        incoming(2, body_of(stream("a", 2, text="forged"))),
        incoming(3, body_of(stream("a", 1, text="forged"))),
        incoming(4, body_of(stream("b", 1)), key="b"),
        incoming(5, b"no JSON"),
        incoming(6, body_of(rejected("a", "command-1"))),
        incoming(7, body_of(stream("a", 2, "command-1"))),
    ]
    with capture_logs() as logs:
        sifted = await belief.sift(messages)
    assert [each.offset for each in sifted] == list(range(8))
    kept = [each.offset for each, before in zip(sifted, messages, strict=True) if each is before]
    assert kept == [0, 1, 4]
    assert looked.asked == [4]
    assert belief.foreign == 5
    assert [(each["queue"], each["offset"]) for each in logs] == [
        ("app.events/0", offset) for offset in (2, 3, 5, 6, 7)
    ]
    assert logs[0]["why"] == "it has no seal, and not stored"


async def test_a_stored_event_with_the_key_of_another_aggregate_is_foreign(
    belief: Belief, looked: Looked
) -> None:
    """Or handlers, which go by the key, would handle the whole aggregate again."""
    await looked.store.append([stream("a", 1)])
    sealed, plain = SEAL.put_on(body_of(stream("a", 1))), body_of(stream("a", 1))
    sifted = await belief.sift([incoming(0, sealed, key="b"), incoming(1, plain, key="b")])
    assert [each.key for each in sifted] == [HEARTBEAT] * 2
    assert belief.foreign == 2
    assert await belief.strangers([sealed, plain]) == {}


async def test_the_seal_of_another_store_is_looked_up_too(belief: Belief, looked: Looked) -> None:
    """A store that was copied into a new database still knows what the old one published."""
    await looked.store.append([stream("a", 1)])
    other = Seal(new_identity())
    bodies = [other.put_on(body_of(stream("a", 1))), other.put_on(body_of(stream("a", 2)))]
    found = await belief.strangers(bodies, ["a", "a"])
    assert found.keys() == {1}
    assert "another event store" in found[1]


async def test_many_messages_are_looked_up_in_few_queries(
    belief: Belief, looked: Looked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOOKED_UP_MAX", 10)
    await looked.store.append([stream("a", n) for n in range(1, 26)])
    bodies = [body_of(stream("a", n)) for n in range(1, 28)]
    assert list(await belief.strangers(bodies)) == [25, 26]
    assert looked.asked == [10, 10, 7]


async def test_a_foreign_message_is_logged_once_for_all_readers(belief: Belief) -> None:
    forged = incoming(4, body_of(stream("a", 2)))
    with capture_logs() as logs:
        for _ in range(3):
            (passed,) = await belief.sift([forged])
    assert (len(logs), belief.foreign) == (1, 1)
    # For every reader it is the rejection of a command that nobody sends.
    assert (passed.queue, passed.offset, passed.headers["kind"]) == (QUEUE, 4, "rejection")
    read = SERIALIZER.decode_published(passed.body)
    assert (read.version, read.events, read.aggregate_type) == (None, (), HEARTBEAT)


async def test_a_heartbeat_of_an_earlier_version_is_not_foreign(belief: Belief) -> None:
    beat = belief.passed_over(QUEUE, 0)
    assert await belief.strangers([beat.body]) == {}


async def test_a_message_is_not_checked_where_neither_it_nor_the_stored_stream_can_be_read() -> (
    None
):
    """Passed over, its events would be missing from rows once they can be read again."""
    read, unread = body_of(stream("a", 1)), body_of(stream("a", 1)).replace(b"Noted", b"Unknown")
    held = {("a", "command-1"): DamagedStream(7, "a", 1, "command-1", "no key")}

    async def find(commands: Collection[tuple[str, str]]) -> StoredByCommand:
        return {each: held[each] for each in commands if each in held}

    belief = Belief(seal=SEAL, find=find, serializer=SERIALIZER)
    messages = [
        incoming(0, unread),
        incoming(1, read),
        incoming(2, unread, key="b"),
        incoming(3, unread.replace(b"command-1", b"command-2")),
    ]
    with capture_logs() as logs:
        for _ in range(2):
            passed, *others = await belief.sift(messages)
    assert (passed.key, passed.headers) == ("a", {"kind": "events"})
    with pytest.raises((SerializationError, UnknownMessageType)):
        SERIALIZER.decode_published(passed.body)
    # One that can be read is foreign, as is one of another aggregate, or of a command that the store does not know.
    assert [each.key for each in others] == [HEARTBEAT] * 3
    assert belief.foreign == 3
    assert [(each["offset"], "cannot be checked" in each["event"]) for each in logs] == [
        (0, True), (1, False), (2, False), (3, False),
    ]  # fmt: skip
    assert logs[0]["why"] == "no key"
    # Rebuilds leave it out, and say why.
    found = await belief.strangers([unread], ["a"])
    assert found == {0: "it cannot be checked: no key"}


@pytest.mark.parametrize("value", [b'"\xff"', b"1e999"])
async def test_a_message_that_is_no_json_is_foreign_where_the_stored_stream_cannot_be_read(
    value: bytes,
) -> None:
    """Its aggregate and its command can be read all the same."""
    forged = b'{"aggregate_id": "a", "command_id": "command-1", "data": ' + value + b"}"

    async def find(_: Collection[tuple[str, str]]) -> StoredByCommand:
        return {("a", "command-1"): DamagedStream(7, "a", 1, "command-1", "no key")}

    belief = Belief(seal=SEAL, find=find, serializer=SERIALIZER)
    (passed,) = await belief.sift([incoming(0, forged)])
    assert (passed.key, belief.foreign) == (HEARTBEAT, 1)
