"""Which brokers there are: what they said last, for as long as they say it, and one leader of each group at most."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_mq.errors import InvalidArgument, Overloaded
from headrace_mq.nameserver.route_table import (
    ADDRESS_CHARS_MAX,
    ADDRESSES_MAX,
    NAME_CHARS_MAX,
    RouteTable,
)
from headrace_mq.protocol.names.routes import ALONE, LEADER, REPLICA, Register

EXPIRY_MS, NOT_READY_MS, MOST = 10_000, 2_000, 4


@pytest.fixture
def table() -> RouteTable[str]:
    return made()


def made() -> RouteTable[str]:
    return RouteTable(
        registrations_max=MOST, expiry_ms=EXPIRY_MS, not_ready_ms=NOT_READY_MS, now_ms=0
    )


def said(
    broker: str = "a:1",
    role: str = LEADER,
    epoch: int = 1,
    *,
    group: str = "g1",
    cluster: str = "c",
) -> Register:
    return Register(cluster, group, broker, role, epoch, [broker], 100)


def told(table: RouteTable[str], now_ms: int = 0, group: str = "") -> list[tuple[str, str]]:
    return [(one.broker, one.role) for one in table.routes("c", group, now_ms).brokers]


def test_a_broker_that_registered_is_found_until_its_connection_ends(
    table: RouteTable[str],
) -> None:
    table.register("first", said(), 0)
    (route,) = table.routes("c", "g1", 7).brokers
    assert (route.addresses, route.epoch, route.position, route.age_ms) == (["a:1"], 1, 100, 7)
    assert table.routes("", "", 7).brokers == [route]
    assert table.drop("first") == said()
    assert told(table) == []
    assert table.drop("first") is None


def test_a_broker_that_says_nothing_is_forgotten(table: RouteTable[str]) -> None:
    table.register("first", said(), 0)
    table.register("first", said(), 5_000)
    assert told(table, 5_000 + EXPIRY_MS - 1)
    assert not told(table, 5_000 + EXPIRY_MS)
    assert table.expired == 1
    assert len(table) == 0


def test_a_table_is_not_ready_at_first(table: RouteTable[str]) -> None:
    assert not table.routes("c", "", NOT_READY_MS - 1).ready
    assert table.routes("c", "", NOT_READY_MS).ready


def test_leaders_come_first_and_clusters_and_groups_stay_apart(table: RouteTable[str]) -> None:
    table.register("1", said("a:1", REPLICA), 0)
    table.register("2", said("b:1", LEADER), 0)
    table.register("3", said("x:1", ALONE, group="g0"), 0)
    table.register("4", said("y:1", ALONE, cluster="other"), 0)
    assert told(table) == [("x:1", ALONE), ("b:1", LEADER), ("a:1", REPLICA)]
    assert told(table, group="g1") == [("b:1", LEADER), ("a:1", REPLICA)]
    assert [one.broker for one in table.routes("", "", 0).brokers] == ["x:1", "b:1", "a:1", "y:1"]


def test_a_leader_of_an_earlier_epoch_is_none(table: RouteTable[str]) -> None:
    table.register("old", said("a:1", LEADER, 4), 0)
    table.register("new", said("b:1", REPLICA, 5), 0)
    assert told(table) == [("b:1", REPLICA), ("a:1", REPLICA)]
    table.register("new", said("b:1", LEADER, 5), 0)
    assert told(table) == [("b:1", LEADER), ("a:1", REPLICA)]


def test_a_broker_that_connects_again_is_there_once_and_its_old_connection_takes_nothing_away(
    table: RouteTable[str],
) -> None:
    table.register("before", said(epoch=1), 0)
    table.register("after", said(epoch=2), 0)
    table.drop("before")
    assert told(table) == [("a:1", LEADER)]
    assert len(table) == 1


def test_a_connection_has_one_broker(table: RouteTable[str]) -> None:
    table.register("one", said("a:1"), 0)
    table.register("one", said("b:1"), 0)
    assert told(table) == [("b:1", LEADER)]


def test_brokers_that_are_alone_share_no_group(table: RouteTable[str]) -> None:
    table.register("one", said("a:1", ALONE), 0)
    for role in (ALONE, LEADER, REPLICA):
        with pytest.raises(
            InvalidArgument, match=r"a:1 is registered as group g1 .* with --group NAME"
        ):
            table.register("two", said("b:1", role), 0)
    table.register("two", said("b:1", ALONE, group="g2"), 0)
    # It became one of a group.
    table.register("one", said("a:1", LEADER), 0)
    table.register("three", said("c:1", REPLICA), 0)
    with pytest.raises(InvalidArgument):
        table.register("three", said("c:1", ALONE), 0)


def test_more_brokers_than_fit_are_refused_and_those_known_are_not(table: RouteTable[str]) -> None:
    for number in range(MOST):
        table.register(str(number), said(f"a:{number}", REPLICA), 0)
    with pytest.raises(Overloaded, match="raise registrations_max"):
        table.register("more", said("b:1", REPLICA), 0)
    table.register("0", said("a:0", REPLICA), 5_000)
    table.register("more", said("b:1", REPLICA), EXPIRY_MS)
    assert len(table) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        said(cluster=""), said(group=""), said(group="g" * (NAME_CHARS_MAX + 1)), said(cluster="a\nb"),
        said(role="king"), said(epoch=-1), said("a"), said("u:p@a:1"), said("a" * ADDRESS_CHARS_MAX + ":1"),
        Register("c", "g", "a:1", LEADER, 1, []), Register("c", "g", "a:1", LEADER, 1, ["a:1"], -1),
        Register("c", "g", "a:1", LEADER, 1, ["a:1"] * (ADDRESSES_MAX + 1)),
        Register("c", "g", "a:1", LEADER, 1, ["nowhere"]),
    ],
)  # fmt: skip
def test_a_registration_with_wrong_names_is_refused(
    table: RouteTable[str], wrong: Register
) -> None:
    with pytest.raises(InvalidArgument):
        table.register("one", wrong, 0)
    assert len(table) == 0


class Step(NamedTuple):
    """One thing that happens: a connection says something, or ends, some time later."""

    owner: str
    said: Register | None
    after_ms: int


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from("pqrst"),
        st.one_of(
            st.none(),
            st.builds(
                said, st.sampled_from(["a:1", "b:1", "c:1", "d:1", "e:1"]), st.sampled_from([LEADER, REPLICA]),
                st.integers(1, 3), group=st.sampled_from(["g1", "g2"]),
            ),
        ),
        st.integers(0, EXPIRY_MS),
    ),
    max_size=30,
)  # fmt: skip


@given(steps)
def test_a_table_has_what_each_open_connection_said_last(happened: list[Step]) -> None:
    table, now_ms = made(), 0
    # A slow table: the last word of each connection.
    last: dict[str, tuple[Register, int]] = {}
    for owner, register, after_ms in happened:
        now_ms += after_ms
        last = {one: kept for one, kept in last.items() if now_ms - kept[1] < EXPIRY_MS}
        if register is None:
            table.drop(owner)
            last.pop(owner, None)
            continue
        key = (register.group, register.broker)
        known = [one for one, (kept, _) in last.items() if (kept.group, kept.broker) == key]
        try:
            table.register(owner, register, now_ms)
        except Overloaded:
            assert owner not in last
            assert not known
            assert len(last) == MOST
            continue
        for one in known:
            del last[one]
        last[owner] = (register, now_ms)
        found = table.routes("", "", now_ms).brokers
        assert len(table) == len(found) == len(last) <= MOST
        assert {(one.group, one.broker, one.epoch) for one in found} == {
            (kept.group, kept.broker, kept.epoch) for kept, _ in last.values()
        }
        for group in ("g1", "g2"):
            brokers = [one for one in found if one.group == group]
            leaders = [one for one in brokers if one.role == LEADER]
            assert len(leaders) <= 1
            assert leaders == [] or leaders == brokers[:1]
            assert all(one.epoch == max(each.epoch for each in brokers) for one in leaders)


def test_a_table_tells_which_registrations_change_something(table: RouteTable[str]) -> None:
    assert table.register("one", said(role=REPLICA), 0)
    assert not table.register("one", said(role=REPLICA), 1_000)
    assert table.register("one", said(role=LEADER), 2_000)
    assert table.register("one", said(role=LEADER, epoch=2), 3_000)
