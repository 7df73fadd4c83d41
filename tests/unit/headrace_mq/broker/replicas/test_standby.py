"""A replica says where the leader is; once elected it lets its replicas in before clients."""

from typing import Any

from headrace_mq.broker.replicas.standby import Standby
from headrace_mq.errors import InvalidArgument, LoginFailed, ResponseCode
from headrace_mq.protocol.access import Login, LoginAnswer
from headrace_mq.protocol.bodies import ErrorAnswer, Hello, HelloAnswer, decode, encode
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, REPLICA_SOFTWARE, Frame


class Client:
    """A connection that keeps the last answer."""

    def __init__(self) -> None:
        self.client_id = self.user = ""
        self.code, self.body = -1, b""
        self.admitted = 0

    def answer(self, code: int, _correlation: int, *parts: bytes) -> None:
        self.code, self.body = code, b"".join(parts)

    def greet(self, client_id: str, _version: int) -> None:
        self.client_id = client_id

    def admit(self, _frame_bytes_max: int) -> None:
        self.admitted += 1

    def refuse(self) -> None:
        pass


def frame(code: int, body: bytes = b"") -> Frame:
    return Frame(code=code, flags=0, correlation=1, version=PROTOCOL_VERSION, body=memoryview(body))


def hello(software: str) -> Frame:
    return frame(
        RequestCode.HELLO, encode(Hello("id", PROTOCOL_VERSION, PROTOCOL_VERSION, software))
    )


class Leads:
    """A leadership that serves, or does not."""

    hindrance = ""


class Term:
    """Followers of which only the epoch matters, and what it waits for."""

    epoch = 5
    leadership = Leads()

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


class Guarded:
    """A door that takes the second message of a login, and lets nothing through without one."""

    def __init__(self) -> None:
        self.steps = 0

    def greet(self, _connection: Any) -> list[str]:
        return ["SCRAM"]

    def step(self, connection: Any, _request: Login) -> LoginAnswer:
        self.steps += 1
        connection.user = "root" if self.steps == 2 else ""
        return LoginAnswer("said")

    def check(self, connection: Any, _frame: Frame) -> None:
        if not connection.user:
            raise LoginFailed("log in")

    def forget(self, _connection: Any) -> None:
        self.steps = 0


def test_with_a_login_a_replica_gets_in_by_it() -> None:
    standby = Standby(lambda: "", 1_000)
    term: Any = Term()
    standby.followers, standby.door = term, Guarded()
    client: Any = Client()
    standby.on_frame(client, hello(REPLICA_SOFTWARE))
    assert decode(HelloAnswer, client.body).login == ["SCRAM"]
    assert client.admitted == 0
    standby.on_frame(client, frame(RequestCode.FOLLOW))
    assert client.code == ResponseCode.LOGIN_FAILED
    for admitted in (0, 1):
        standby.on_frame(client, frame(RequestCode.LOGIN, encode(Login("SCRAM", "message"))))
        assert decode(LoginAnswer, client.body) == LoginAnswer("said")
        assert client.admitted == admitted
    standby.on_frame(client, frame(RequestCode.FOLLOW))
    assert term.asked == 1
    standby.on_lost(client)
    assert standby.door.steps == 0


def test_a_client_hears_what_a_leader_waits_for() -> None:
    standby = Standby(lambda: "", 1_000)
    term: Any = Term()
    term.leadership = Leads()
    term.leadership.hindrance = "2 brokers must be in sync"
    standby.followers = term
    said = refused(Client(), standby, hello("headrace"))
    assert said == "this broker leads its group, and does not serve yet: 2 brokers must be in sync"
