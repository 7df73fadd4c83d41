"""
Lets the kernel notice peers that vanished without a word: power, cable, a firewall that forgets.

Used by the connections of both sides; sets options of their sockets.
"""

import socket

__all__ = ["VANISHED_MS", "VANISHED_MS_LEAST", "notice_vanished"]

# For clients. Shorter would also end connections to a broker whose disk stalls.
VANISHED_MS = 10_000
# Probes count in whole seconds.
VANISHED_MS_LEAST = 4_000

_PROBES = 3


def notice_vanished(sock: socket.socket, vanished_ms: int) -> None:
    """Ends a socket's connection when its peer has acknowledged nothing for so long.

    Half of the time where nothing waits to be acknowledged: a quarter of silence, then three
    probes. Accepted sockets inherit it from their listener.

    Args:
        sock: a TCP socket.
        vanished_ms: in milliseconds; at least VANISHED_MS_LEAST.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    half_ms = vanished_ms // 2
    # Not every system has every one of these.
    for name, value in (
        ("TCP_KEEPIDLE", max(half_ms // 2_000, 1)),
        ("TCP_KEEPINTVL", max(half_ms // 2_000 // _PROBES, 1)),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", vanished_ms),
    ):
        option = getattr(socket, name, None)
        if option is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
