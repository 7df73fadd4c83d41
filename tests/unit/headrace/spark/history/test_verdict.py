"""What a message is, compared with what the store holds for its command."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import Aggregate, App, DomainEvent, applies
from headrace.domain.stream import EventStream, Rejection
from headrace.events.publisher import HEARTBEAT
from headrace.events.seals import Seal
from headrace.spark.history.verdict import Found, PartMessage, compare, wanted_of
from headrace.stores.base import StoreIdentity
from headrace.stores.database.command_bodies import StoredCommand


class Poured(DomainEvent):
    litres: int


class Barrel(Aggregate):
    @applies
    def _poured(self, event: Poured) -> None:
        pass


app = App("barrels")
app.add(Barrel)
encode, decode = app.serializer.encode_stream, app.serializer.decode_stream
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
SEAL = Seal(StoreIdentity(id="0-1-2-123456789abc", seal_key=b"k" * 32, made_at=NOW))


def stream(litres: int = 1, aggregate_id: str = "b-1", version: int = 1) -> EventStream:
    return EventStream(
        aggregate_type="Barrel", aggregate_id=aggregate_id, version=version, command_id="c-1",
        correlation_id="c-1", recorded_at=NOW, events=(Poured(litres=litres),),
    )  # fmt: skip


def judge(body: bytes, stored: bytes | None, *, key: str = "b-1", damaged: bool = False) -> Found:
    messages = [PartMessage(7, key, body)]
    rows = {} if stored is None else {("b-1", "c-1"): StoredCommand(1, stored, damaged)}
    found = compare(messages, rows, broken=set(SEAL.broken([body])), decode=decode)
    assert all(each.offset == 7 for each in found)
    return found[0].found if found else Found.SAME


BODY = encode(stream())
SEALED = SEAL.put_on(BODY)


@pytest.mark.parametrize(
    ("body", "stored", "found"),
    [
        (SEALED, BODY, Found.SAME),
        (BODY, BODY, Found.SAME),
        # Of another form, as of a newer version of the event: the same once decoded.
        (SEALED, BODY.replace(b'"litres":1', b'"litres": 1'), Found.SAME),
        (SEALED, encode(stream(2)), Found.DIFFERS),
        (SEALED, None, Found.MISSING),
        (BODY, None, Found.FOREIGN),
        (encode(stream(2)), BODY, Found.FOREIGN),
        (b"no JSON", None, Found.FOREIGN),
        (BODY.replace(b"Poured", b"Spilled"), BODY, Found.FOREIGN),
    ],
)
def test_a_message_is_the_stores_own_or_named(
    body: bytes, stored: bytes | None, found: Found
) -> None:
    assert judge(body, stored) is found


def test_a_stored_stream_with_a_wrong_checksum_and_a_message_with_a_wrong_key_are_named() -> None:
    assert judge(SEALED, BODY, damaged=True) is Found.DAMAGED
    assert judge(SEALED, BODY, key="b-2") is Found.FOREIGN


@pytest.mark.parametrize("seal", [True, False])
def test_a_heartbeat_is_never_stored_and_no_forged_event(seal: bool) -> None:
    rejection = Rejection(
        error="", sentence="", command_name=HEARTBEAT, command_version=1, command_data={}
    )
    beat = replace(
        stream(aggregate_id=HEARTBEAT), aggregate_type=HEARTBEAT, version=None, events=(),
        rejection=rejection,
    )  # fmt: skip
    body = SEAL.put_on(encode(beat)) if seal else encode(beat)
    assert judge(body, None, key=HEARTBEAT) is Found.SAME


@given(st.binary(max_size=40), st.integers(0, len(SEALED) - 1))
def test_a_body_that_was_changed_anywhere_is_never_the_same_unless_it_means_the_same(
    noise: bytes, place: int
) -> None:
    changed = SEALED[:place] + noise + SEALED[place + len(noise) :]
    found = judge(changed, BODY)
    if found is Found.SAME:
        assert decode(changed) == decode(BODY)


def test_the_store_is_asked_for_each_command_once() -> None:
    messages = [PartMessage(n, "b-1", body) for n, body in enumerate([SEALED, BODY, b"no"])]
    assert wanted_of(messages) == {("b-1", "c-1")}
