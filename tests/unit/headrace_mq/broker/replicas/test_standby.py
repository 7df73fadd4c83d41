"""A replica says where the leader is; once elected it lets its replicas in before clients."""

from typing import Any

from headrace_mq.broker.replicas.standby import Standby
from headrace_mq.errors import InvalidArgument, ResponseCode
from headrace_mq.protocol.bodies import ErrorAnswer, Hello, HelloAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, REPLICA_SOFTWARE, Frame


class Client:
    """A connection that keeps the last answer."""

    def __init__(self) -> None:
        self.client_id = ""
        self.code, self.body = -1, b""

    def answer(self, code: int, _correlation: int, *parts: bytes) -> None:
        self.code, self.body = code, b"".join(parts)

    def greet(self, client_id: str, _version: int) -> None:
        self.client_id = client_id

    def admit(self, _frame_bytes_max: int) -> None:
        pass

    def refuse(self) -> None:
        pass


def frame(code: int, body: bytes = b"") -> Frame:
    return Frame(code=code, flags=0, correlation=1, version=PROTOCOL_VERSION, body=memoryview(body))


def hello(software: str) -> Frame:
    return frame(
        RequestCode.HELLO, encode(Hello("id", PROTOCOL_VERSION, PROTOCOL_VERSION, software))
    )


class Term:
    """Followers of which only the epoch matters."""

    epoch = 5

    def __init__(self) -> None:
        self.asked = 0

    def follow(self, _connection: Any, _frame: Frame) -> None:
        self.asked += 1


def refused(client: Any, standby: Standby, asked: Frame) -> str:
    standby.on_frame(client, asked)
    assert client.code == ResponseCode.NOT_LEADER
    return decode(ErrorAnswer, client.body).sentence


def test_clients_and_replicas_are_sent_to_the_leader() -> None:
    leader = "h:2"
    standby = Standby(lambda: leader, 1_000)
    for software in ("headrace-python", REPLICA_SOFTWARE):
        assert "its leader is at h:2" in refused(Client(), standby, hello(software))
    leader = ""
    assert "no leader" in refused(Client(), standby, hello("headrace-python"))


def test_an_elected_broker_answers_replicas_and_no_clients() -> None:
    standby = Standby(lambda: "", 1_000)
    standby.address, term, replica = "h:1", Term(), Client()
    standby.followers = term  # type: ignore[assignment]  # only what is used of it
    refused(Client(), standby, hello("headrace-python"))
    standby.on_frame(replica, hello(REPLICA_SOFTWARE))  # type: ignore[arg-type]  # only what is used of it
    assert decode(HelloAnswer, replica.body) == HelloAnswer("h:1", PROTOCOL_VERSION, 5, 1_000)
    standby.on_frame(replica, frame(RequestCode.FOLLOW))  # type: ignore[arg-type]  # only what is used of it
    assert term.asked == 1
    refused(replica, standby, frame(RequestCode.PRODUCE))
    standby.followers = None
    refused(replica, standby, frame(RequestCode.FOLLOW))


def test_the_first_frame_is_hello_and_failures_become_answers() -> None:
    standby, client = Standby(lambda: "", 1_000), Client()
    standby.on_frame(client, frame(RequestCode.FOLLOW))  # type: ignore[arg-type]  # only what is used of it
    assert client.code == ResponseCode.MALFORMED_REQUEST
    standby.on_unreadable(client, InvalidArgument("no"))  # type: ignore[arg-type]  # only what is used of it
    assert client.code == ResponseCode.INVALID_ARGUMENT
    standby.on_drained(client)  # type: ignore[arg-type]  # only what is used of it
    standby.on_lost(client)  # type: ignore[arg-type]  # only what is used of it
