import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.client.batch.message_columns import MessageColumns
from headrace_mq.client.producer import route as routing
from headrace_mq.client.producer.route import Route, queue_for_key
from headrace_mq.message import Message


def message(key: str = "") -> Message:
    return Message(topic="t", key=key, body=b"")


def crc32c(data: bytes) -> int:
    """CRC-32C bit by bit, from its polynomial: the routing rule is part of the wire contract."""
    crc = 0xFFFF_FFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F6_3B78 if crc & 1 else 0)
    return crc ^ 0xFFFF_FFFF


def test_the_reference_is_crc32c() -> None:
    assert crc32c(b"123456789") == 0xE306_9283


@given(key=st.text(), queues=st.integers(1, 1024))
def test_a_key_goes_to_the_crc32c_of_its_utf8_bytes_modulo_the_queues(
    key: str, queues: int
) -> None:
    assert queue_for_key(key, queues) == crc32c(key.encode()) % queues


@given(key=st.text(min_size=1), queues=st.integers(1, 1024))
def test_a_key_always_goes_to_the_same_queue_of_those_there_are(key: str, queues: int) -> None:
    route = Route("t", queues)
    chosen = {route.choose(message(key)) for _ in range(3)}
    assert chosen == {queue_for_key(key, queues)}
    assert chosen <= set(range(queues))


def test_messages_without_a_key_go_round_robin() -> None:
    route = Route("t", 3)
    first = route.choose(message())
    assert [route.choose(message()) for _ in range(5)] == [(first + n) % 3 for n in range(1, 6)]


def test_queues_that_were_added_get_their_turn() -> None:
    route = Route("t", 1)
    route.choose(message())
    route.queues = 3
    assert {route.choose(message()) for _ in range(3)} == {0, 1, 2}


def test_a_selector_chooses_instead() -> None:
    route = Route("t", 4, lambda message, queues: queues - 1)
    assert route.choose(message("any")) == 3


@pytest.mark.parametrize("wild", [-1, 4])
def test_a_selector_that_leaves_the_range_is_an_error(wild: int) -> None:
    route = Route("t", 4, lambda message, queues: wild)
    with pytest.raises(ValueError, match=f"chose queue {wild}; t has queues 0 to 3"):
        route.choose(message())


@given(
    keys=st.lists(st.sampled_from(["", "a", "b", "ü", "d"]), min_size=1, max_size=30),
    queues=st.integers(1, 5),
    before=st.integers(0, 4),
    selected=st.booleans(),
)
def test_many_messages_go_where_each_one_would(
    keys: list[str], queues: int, before: int, selected: bool
) -> None:
    selector = (lambda message, queues: len(message.key) % queues) if selected else None
    one, many = Route("t", queues, selector), Route("t", queues, selector)
    for route in (one, many):
        for _ in range(before):
            route.choose(Message(topic="t", body=b""))
    messages = [Message(topic="t", body=b"", key=key) for key in keys]
    chosen = [one.choose(message) for message in messages]
    divided = many.divide(MessageColumns.of(messages))
    assert {place: queue for queue, places in divided for place in places} == dict(
        enumerate(chosen)
    )
    assert all(list(places) == sorted(places) for _, places in divided)
    assert one.choose(messages[0]) == many.choose(messages[0])


def divided(route: Route, keys: list[str]) -> dict[int, int]:
    """The queue of each place."""
    part = MessageColumns([b""] * len(keys), keys)
    return {place: queue for queue, places in route.divide(part) for place in places}


@given(
    calls=st.lists(
        st.tuples(st.lists(st.text(min_size=1, max_size=3), min_size=1), st.integers(1, 6)),
        min_size=2,
        max_size=6,
    ),
    known_max=st.integers(0, 5),
)
def test_keys_that_came_before_go_where_their_hash_says_however_many_queues_there_are_now(
    calls: list[tuple[list[str], int]], known_max: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(routing, "KNOWN_KEYS_MAX", known_max)
        route = Route("t", 4)
        for keys, queues in [*calls, *calls]:
            route.update(queues)
            expected = {place: queue_for_key(key, queues) for place, key in enumerate(keys)}
            assert divided(route, keys) == expected


def test_a_bounded_number_of_keys_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "KNOWN_KEYS_MAX", 10)
    route = Route("t", 4)
    most = 0
    for turn in range(20):
        # Half of the keys of a call were there before, so remembering goes on.
        divided(route, ["often", "always", "again", f"once-{turn}"])
        most = max(most, route.known)
    assert 0 < most <= 10


def test_a_table_that_filled_up_without_being_of_use_is_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "KNOWN_KEYS_MAX", 10)
    route = Route("t", 4)
    for turn in range(20):
        divided(route, [f"once-{turn}", f"new-{turn}"])
    assert route.known == 0


def test_a_full_table_that_was_of_use_begins_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "KNOWN_KEYS_MAX", 10)
    route = Route("t", 4)
    for turn in range(12):
        divided(route, ["often", "always", "again", f"once-{turn}"])
    assert 0 < route.known < 10


def test_long_keys_are_not_remembered() -> None:
    route = Route("t", 4)
    longest = "k" * routing.KNOWN_KEY_CHARACTERS_MAX
    assert divided(route, ["a", longest + "k"])[1] == queue_for_key(longest + "k", 4)
    assert route.known == 0
    divided(route, ["a", longest])
    assert route.known == 2


def test_the_queues_of_keys_are_forgotten_when_queues_are_added() -> None:
    route = Route("t", 4)
    divided(route, ["a", "b"])
    assert route.known == 2
    route.update(4)
    assert route.known == 2
    route.update(5)
    assert route.known == 0


@given(
    queues=st.integers(1, 6),
    closed=st.sets(st.integers(0, 5)),
    keys=st.lists(st.text(max_size=3), min_size=1),
    compact=st.booleans(),
)
def test_keys_are_divided_among_the_queues_that_take_messages(
    queues: int, closed: set[int], keys: list[str], compact: bool
) -> None:
    route = Route("t", 4)
    divided(route, keys)
    closed &= set(range(queues))
    route.update(queues, closed, compact=compact)
    left = [number for number in range(queues) if number not in closed]
    among = list(range(queues)) if compact or not left else left
    for place, number in divided(route, keys).items():
        if keys[place]:
            assert number == among[queue_for_key(keys[place], len(among))]
            assert number == route.choose(Message(topic="t", body=b"", key=keys[place]))
        else:
            assert number in (left or range(queues))
    assert route.is_open == bool(left)


def test_to_remove_a_queue_that_was_frozen_moves_no_key() -> None:
    route, keys = Route("t", 4), [f"k{n}" for n in range(50)]
    assert route.update(4, {3})
    frozen = divided(route, keys)
    assert route.update(3)
    assert divided(route, keys) == frozen
    assert not route.update(3)


def test_single_messages_and_many_share_one_table_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    route = Route("orders", 7)
    queues = {key: route.choose(message(key)) for key in ("ann", "bob")}
    assert route.known == 2
    assert [*divided(route, ["ann", "bob"]).values()] == [*queues.values()]
    monkeypatch.setattr(routing, "open_queue_for_key", lambda *_: pytest.fail("it hashed again"))
    assert route.choose(message("ann")) == queues["ann"]


def test_single_messages_with_ever_new_keys_give_the_table_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routing, "KNOWN_KEYS_MAX", 10)
    route = Route("orders", 7)
    for number in range(11):
        route.choose(message(f"key {number}"))
    assert route.known == 0
    route.choose(message("key 1"))
    assert route.known == 0
