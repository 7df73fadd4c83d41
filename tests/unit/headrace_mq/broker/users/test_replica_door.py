"""Before a term begins, a replica gets in as it does later: as a user that may administer the cluster."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from structlog.testing import capture_logs

from headrace_mq._net.address import ClientLogin
from headrace_mq._net.login import credentials_of, login_steps
from headrace_mq._runtime.clock import SystemClock
from headrace_mq.access.audit import LEFT_OUT
from headrace_mq.broker.metadata import users_file
from headrace_mq.broker.users.replica_door import ReplicaDoor
from headrace_mq.broker.users.user_book import UserBook
from headrace_mq.errors import LoginFailed, NotPermitted
from headrace_mq.protocol.access import ED25519, SCRAM, Login, SetUser
from headrace_mq.protocol.bodies import HelloAnswer
from headrace_mq.protocol.codes import RequestCode
from headrace_mq.protocol.frame import PROTOCOL_VERSION, Frame

FOLLOW = Frame(RequestCode.FOLLOW, PROTOCOL_VERSION, 0, 1, memoryview(b""))
PER_SECOND_MAX = 20


class Caller:
    """What a door sees of a connection."""

    def __init__(self, principal: str = "") -> None:
        self.user, self.principal, self.host = "", principal, "127.0.0.1"
        self.peer = "127.0.0.1:4000"


@pytest.fixture
def door(tmp_path: Path) -> ReplicaDoor:
    (tmp_path / "metadata").mkdir()
    book = UserBook(users_file(tmp_path))
    password = credentials_of(SecretStr("a long pencil"))
    book.change(SetUser("add", "root", [password], admin=1))
    book.change(SetUser("add", "ann", [password]))
    book.change(SetUser("add", "CN=broker", admin=1))
    return ReplicaDoor(book, SystemClock(), PER_SECOND_MAX, 10)


def log_in(door: ReplicaDoor, caller: Any, user: str, file: Path, password: str) -> None:
    file.write_text(password)
    file.chmod(0o600)
    hello = HelloAnswer("h:1", PROTOCOL_VERSION, 1, 1_000, door.greet(caller))
    steps = login_steps(ClientLogin(user, file), hello)
    request = next(steps)
    while True:
        try:
            request = steps.send(door.step(caller, request))
        except StopIteration:
            return


def test_an_administrator_follows(door: ReplicaDoor, tmp_path: Path) -> None:
    caller: Any = Caller()
    with pytest.raises(LoginFailed, match="password_file"):
        door.check(caller, FOLLOW)
    log_in(door, caller, "root", tmp_path / "password", "a long pencil")
    assert caller.user == "root"
    door.check(caller, FOLLOW)
    door.forget(caller)


def test_another_user_does_not(door: ReplicaDoor, tmp_path: Path) -> None:
    caller: Any = Caller()
    log_in(door, caller, "ann", tmp_path / "password", "a long pencil")
    with pytest.raises(NotPermitted, match="ann may not follow"):
        door.check(caller, FOLLOW)


def test_a_wrong_password_is_no_login(door: ReplicaDoor, tmp_path: Path) -> None:
    caller: Any = Caller()
    with pytest.raises(LoginFailed):
        log_in(door, caller, "root", tmp_path / "password", "a short pencil")
    assert caller.user == ""


def test_a_certificate_of_a_user_is_a_login(door: ReplicaDoor) -> None:
    caller: Any = Caller("CN=broker")
    assert door.greet(caller) == []
    door.check(caller, FOLLOW)
    stranger: Any = Caller("CN=stranger")
    assert door.greet(stranger) == [SCRAM, ED25519]


def test_logins_failures_and_refusals_stand_in_the_log(door: ReplicaDoor, tmp_path: Path) -> None:
    ann: Any = Caller()
    eve: Any = Caller()
    broker: Any = Caller("CN=broker")
    with capture_logs() as logs:
        log_in(door, ann, "ann", tmp_path / "password", "a long pencil")
        door.greet(broker)
        with pytest.raises(LoginFailed):
            log_in(door, eve, "root", tmp_path / "password", "a short pencil")
        with pytest.raises(NotPermitted):
            door.check(ann, FOLLOW)
    words = ("log_level", "action", "resource", "outcome", "address")
    assert [tuple(one[word] for word in words) for one in logs] == [
        ("info", "login", "user:ann", "done", "127.0.0.1:4000"),
        ("info", "login", "user:CN=broker", "done", "127.0.0.1:4000"),
        ("warning", "login", "user:root", "failed", "127.0.0.1:4000"),
        ("warning", "follow", "cluster", "refused", "127.0.0.1:4000"),
    ]
    assert logs[0]["detail"] == "with a password"
    assert "pencil" not in str(logs)


def test_a_flood_of_failures_is_counted_in_the_log(door: ReplicaDoor) -> None:
    with capture_logs() as logs:
        for _ in range(10 * PER_SECOND_MAX):
            caller: Any = Caller()
            with pytest.raises(LoginFailed):
                door.step(caller, Login(SCRAM, "no message of a login"))
            door.forget(caller)
        door.close()
    assert {one["outcome"] for one in logs} <= {"failed", LEFT_OUT}
    assert sum(one.get("more", 1) for one in logs) == 10 * PER_SECOND_MAX
    assert len(logs) < PER_SECOND_MAX
