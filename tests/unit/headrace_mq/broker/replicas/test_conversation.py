"""A replica notices that its leader is gone, says once what is wrong, and takes an offer to lead."""

import socket
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from headrace_mq._net.address import BrokerAddress
from headrace_mq._runtime.clock import SystemClock
from headrace_mq.broker.replicas.conversation import Conversation
from headrace_mq.cluster.election import RENEW_MS, Patience
from headrace_mq.errors import LoginFailed, MessageQueueError, NotPermitted, TlsFailed


class Talk:
    """A conversation of the second place, and what it waited for."""

    def __init__(self, place: Any, hindrance: str = "") -> None:
        self.place = place
        self.pauses: list[int] = []
        self.patience = Patience(SystemClock().monotonic_ms(), 0)
        self._conversation = Conversation(
            place.replica, SystemClock(), BrokerAddress.parse, self._pause, lambda: hindrance
        )

    async def _pause(self, wait_ms: int) -> None:
        self.pauses.append(wait_ms)

    async def follow(self, leader: str) -> object:
        return await self._conversation.follow(
            leader, self.place.member, self.patience, lambda: True
        )


async def test_a_refused_connection_counts_against_the_leader(
    places: list[Any], free_port: Callable[[], int]
) -> None:
    talk = Talk(places[1])
    assert await talk.follow(f"127.0.0.1:{free_port()}") is None
    assert talk.patience.is_over(SystemClock().monotonic_ms())
    assert talk.pauses == []


async def test_a_leader_that_says_nothing_is_no_reason_to_hurry(places: list[Any]) -> None:
    talk = Talk(places[1])
    with socket.create_server(("127.0.0.1", 0)) as silent, capture_logs() as lines:
        leader = f"127.0.0.1:{silent.getsockname()[1]}"
        for _ in range(2):
            assert await talk.follow(leader) is None
    assert not talk.patience.is_over(SystemClock().monotonic_ms())
    assert len(talk.pauses) == 2
    said = [one for one in lines if one["event"] == "this broker does not follow its leader now"]
    assert [one["leader"] for one in said] == [leader]


async def test_a_broker_that_must_not_follow_says_so_once_and_does_not_connect(
    places: list[Any],
) -> None:
    talk = Talk(places[1], "there are users, and the login is off")
    with socket.create_server(("127.0.0.1", 0)) as leader, capture_logs() as lines:
        name = f"127.0.0.1:{leader.getsockname()[1]}"
        for _ in range(2):
            assert await talk.follow(name) is None
    assert [(one["log_level"], one["reason"]) for one in lines] == [
        ("error", "there are users, and the login is off")
    ]


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (LoginFailed("no"), "as group.user, with the password in group.password_file"),
        (NotPermitted("no"), "group.user must be an administrator"),
        (TlsFailed("no"), "the authorities in group.ca"),
    ],
)
async def test_a_broker_that_is_not_let_in_names_its_own_settings_and_does_not_hurry(
    places: list[Any], error: MessageQueueError, advice: str
) -> None:
    talk = Talk(places[1])
    with capture_logs() as lines:
        await talk._conversation._wait("127.0.0.1:1", error)
    ((level, reason),) = [(one["log_level"], one["reason"]) for one in lines]
    assert level == "error"
    assert advice in reason
    assert talk.pauses == [RENEW_MS]
