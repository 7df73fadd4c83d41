"""What brokers and name servers say to each other keeps its order of fields."""

from headrace_mq.protocol.bodies import decode, encode
from headrace_mq.protocol.names.routes import (
    ALONE,
    LEADER,
    REPLICA,
    ROLES,
    BrokerRoute,
    FindRoutes,
    Register,
    RoutesAnswer,
)


def test_a_registration_and_its_route_say_the_same_of_a_broker() -> None:
    said = Register("default", "g1", "a:9876", LEADER, 3, ["a:9876"], 512)
    route = BrokerRoute("default", "g1", "a:9876", LEADER, 3, ["a:9876"], 512, 40)
    assert Register.__struct_fields__ == BrokerRoute.__struct_fields__[:-1]
    assert decode(Register, encode(said)) == said
    assert decode(RoutesAnswer, encode(RoutesAnswer(True, [route]))).brokers == [route]


def test_empty_names_ask_for_all() -> None:
    assert FindRoutes() == FindRoutes("", "")


def test_the_roles_are_three_words() -> None:
    assert ROLES == (ALONE, LEADER, REPLICA) == ("alone", "leader", "replica")
