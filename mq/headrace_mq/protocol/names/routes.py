"""
The bodies of a name server: a broker says where it is, a client asks where the brokers of a cluster are.

The rules of `bodies` hold here too: a struct only grows at its end, with defaults.

Used by the name server, by the broker's registration and by the links of clients. Pure.
"""

from headrace_mq.protocol.bodies import Body

__all__ = [
    "ALONE", "LEADER", "REPLICA", "ROLES", "BrokerRoute", "FindRoutes", "Register", "Registered",
    "RoutesAnswer",
]  # fmt: skip

# A broker that is in no group of brokers; one that serves its group's clients; one that copies from that.
ALONE, LEADER, REPLICA = "alone", "leader", "replica"
ROLES = (ALONE, LEADER, REPLICA)


class Register(Body, frozen=True):
    """A broker says where it is; it repeats this every second.

    `broker` is its name in its group. `role` is "alone", "leader" or "replica". `epoch` counts the elections of a group,
    or the starts of a broker that is alone. `addresses` are HOST:PORT for clients. `position` is how many bytes its
    logs have.
    """

    cluster: str
    group: str
    broker: str
    role: str
    epoch: int
    addresses: list[str]
    position: int = 0


class Registered(Body, frozen=True):
    """The answer to REGISTER: the name server forgets the broker after this time, if it is not told again."""

    expires_ms: int


class FindRoutes(Body, frozen=True):
    """Asks where the brokers of a cluster and a group are; an empty name stands for all."""

    cluster: str = ""
    group: str = ""


class BrokerRoute(Body, frozen=True):
    """Where a broker is, as it said `age_ms` ago; the other fields are those of Register.

    Of the brokers of one group at most one is the leader: one in the latest epoch that any of them knows.
    """

    cluster: str
    group: str
    broker: str
    role: str
    epoch: int
    addresses: list[str]
    position: int
    age_ms: int


class RoutesAnswer(Body, frozen=True):
    """The brokers that are known, leaders first; `ready` is false while brokers may not have registered yet."""

    ready: bool
    brokers: list[BrokerRoute]
