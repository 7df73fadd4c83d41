import socket

import pytest

from headrace_mq._net.keepalive import VANISHED_MS, VANISHED_MS_LEAST, notice_vanished

OPTIONS = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")


@pytest.mark.parametrize(
    ("vanished_ms", "told"),
    [
        (VANISHED_MS_LEAST, [1, 1, 3, 4_000]),
        (VANISHED_MS, [2, 1, 3, 10_000]),
        (60_000, [15, 5, 3, 60_000]),
        (3_600_000, [900, 300, 3, 3_600_000]),
    ],
)
def test_probes_are_over_after_half_of_the_time(vanished_ms: int, told: list[int]) -> None:
    with socket.socket() as sock:
        notice_vanished(sock, vanished_ms)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle_s, interval_s, count, unacknowledged_ms = (
            sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in OPTIONS
        )
        assert [idle_s, interval_s, count, unacknowledged_ms] == told
        assert (idle_s + count * interval_s) * 1_000 <= max(vanished_ms // 2, 4_000) <= vanished_ms


def test_a_system_without_an_option_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OPTIONS:
        monkeypatch.delattr(socket, name)
    with socket.socket() as sock:
        notice_vanished(sock, VANISHED_MS)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
