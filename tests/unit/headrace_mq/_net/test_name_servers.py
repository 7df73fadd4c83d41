"""Where the brokers are: name servers are asked in turn until one knows a leader, and what is known stays good."""

import asyncio
from typing import Any

import pytest

from headrace_mq._net import name_servers
from headrace_mq._net.address import BrokerAddress, ClusterName
from headrace_mq._net.name_servers import NameServers, best_of, routes_of
from headrace_mq.errors import ConnectionLost, InvalidArgument, LoginFailed, TlsFailed
from headrace_mq.protocol.bodies import encode
from headrace_mq.protocol.names.routes import LEADER, REPLICA, BrokerRoute, RoutesAnswer

A, B, C = ("a", 1), ("b", 1), ("c", 1)
NAME = ClusterName("c")


def route(place: tuple[str, int], role: str = REPLICA, group: str = "g1") -> BrokerRoute:
    text = f"{place[0]}:{place[1]}"
    return BrokerRoute("c", group, text, role, 1, [text], 0, 0)


def told(*brokers: BrokerRoute, ready: bool = True) -> RoutesAnswer:
    return RoutesAnswer(ready, list(brokers))


class Servers:
    """Name servers that say what the test sets; an error is raised."""

    def __init__(self, **says: RoutesAnswer | Exception) -> None:
        self.says = says
        self.asked: list[str] = []
        self.open = 0
        self.news = asyncio.Event()

    async def open_to(self, place: tuple[str, int]) -> Any:
        self.asked.append(place[0])
        said = self.says[place[0]]
        if isinstance(said, Exception):
            self.news.set()
            raise said
        self.open += 1
        return Connection(self, said)

    async def greet(self, connection: Any) -> None: ...

    def names(self, places: list[tuple[str, int]], name: ClusterName | None = NAME) -> NameServers:
        servers = [(each, 1) for each in self.says]
        return NameServers(servers, name, places, self.open_to, self.greet)


class Connection:
    def __init__(self, servers: Servers, said: RoutesAnswer) -> None:
        self._servers, self._said = servers, said

    async def request(self, _code: int, _body: bytes) -> bytes:
        self._servers.news.set()
        return encode(self._said)

    def end(self, _reason: str) -> None:
        self._servers.open -= 1


def test_the_leader_of_a_group_comes_first() -> None:
    assert routes_of(told(route(B, LEADER), route(A)), NAME) == ([B, A], True)
    assert routes_of(told(route(A)), NAME) == ([A], False)


def test_an_address_that_cannot_be_read_is_left_out() -> None:
    odd = BrokerRoute("c", "g1", "x", LEADER, 1, ["unix:/x", "a:1"], 0, 0)
    assert routes_of(told(odd), NAME) == ([A], True)


@pytest.mark.parametrize(
    ("answer", "name", "sentence"),
    [
        (told(ready=False), NAME, "not ready"),
        (told(route(A), ready=False), NAME, "not ready"),
        (told(), NAME, "knows no broker of cluster c; "),
        (told(), ClusterName("c", "g"), "knows no broker of group g of cluster c; "),
    ],
)
def test_an_answer_without_a_place_is_no_answer(
    answer: RoutesAnswer, name: ClusterName, sentence: str
) -> None:
    with pytest.raises(ConnectionLost, match=sentence):
        routes_of(answer, name)


def test_of_several_groups_the_address_names_one() -> None:
    with pytest.raises(InvalidArgument, match="groups g1, g2: name one of them"):
        routes_of(told(route(A), route(B, group="g2")), NAME)


def test_a_refusal_comes_before_an_absence() -> None:
    refused, tls, away = LoginFailed("no"), TlsFailed("no"), OSError("away")
    assert best_of({A: away, B: refused}) is refused
    assert best_of({A: away, B: tls}) is tls
    assert "a:1: away" in str(best_of({A: away, B: ConnectionLost("gone")}))


async def test_an_address_without_name_servers_keeps_its_places() -> None:
    places = [A, B]
    names = NameServers.of(BrokerAddress.parse("a:1,b:1"), places, None, None)  # type: ignore[arg-type]  # not used
    await names.look()
    assert places == [A, B]
    assert not names.are_asked
    await names.aclose()


async def test_the_places_of_name_servers_are_none_of_brokers() -> None:
    places = [A]
    parsed = BrokerAddress.parse("nameserver://a:1/c")
    names = NameServers.of(parsed, places, None, None)  # type: ignore[arg-type]  # not used
    assert places == []
    assert names.are_asked


async def test_name_servers_are_asked_until_one_knows_a_leader() -> None:
    servers = Servers(
        x=OSError("away"), y=told(ready=False), z=told(route(A)), w=told(route(B, LEADER))
    )
    places: list[tuple[str, int]] = []
    names = servers.names(places)
    await names.look()
    assert places == [B]
    assert servers.asked[-1] == "w"
    assert servers.open == 0
    await names.aclose()


async def test_brokers_without_a_leader_are_better_than_none() -> None:
    servers = Servers(x=OSError("away"), z=told(route(A)))
    places: list[tuple[str, int]] = []
    names = servers.names(places)
    await names.look()
    assert places == [A]
    await names.aclose()


async def test_name_servers_that_know_nothing_give_their_reasons() -> None:
    servers = Servers(x=OSError("away"), y=told())
    names = servers.names([])
    with pytest.raises(ConnectionLost, match="away"):
        await names.look()
    await names.aclose()


async def test_a_name_server_that_does_not_answer_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(name_servers, "ANSWER_MS_MAX", 1)
    servers = Servers(x=told())

    async def never(_: object) -> None:
        await asyncio.get_running_loop().create_future()

    servers.greet = never  # type: ignore[method-assign]  # on purpose
    with pytest.raises(ConnectionLost, match="no answer within 1 ms"):
        await servers.names([]).look()


async def test_known_places_are_used_while_the_name_servers_are_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for pause in ("SOON_MS", "AGAIN_MS"):
        monkeypatch.setattr(name_servers, pause, 0)
    servers = Servers(x=OSError("away"))
    places = [A, B]
    names = servers.names(places)
    await names.look()
    assert servers.asked == []
    await servers.news.wait()
    assert places == [A, B]
    # The one that served last stays the first; one that is gone is left out.
    servers.says["x"] = told(route(C, LEADER), route(A))
    await names.look()
    while places != [A, C]:
        await asyncio.sleep(0)
    await names.aclose()


async def test_a_silent_broker_has_the_name_servers_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for pause in ("SOON_MS", "AGAIN_MS"):
        monkeypatch.setattr(name_servers, pause, 0)
    servers = Servers(x=told(route(A, LEADER)))
    places: list[tuple[str, int]] = []
    names = servers.names(places)
    await names.look()
    servers.says["x"] = told(route(B, LEADER), route(A))
    others = names.others(A)
    assert others() == []
    while others() != [B]:
        await asyncio.sleep(0)
    await names.aclose()
