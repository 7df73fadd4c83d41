"""What this machine can do at best, measured in the same run as what is compared with it."""

import os
import platform
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

__all__ = [
    "append_bytes_per_second", "facts", "fdatasync_per_second", "limits",
    "loopback_round_trips_per_second", "memory_copy_bytes_per_second", "rate",
]  # fmt: skip

RUNS = 3
MIB = 2**20


def rate(count: int, work: Callable[[], None]) -> float:
    """Returns the median number per second over three runs of `work`, which does `count` of it."""
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return count / statistics.median(seconds)


def facts() -> dict[str, object]:
    """Names the machine: cores, kernel, Python."""
    return {
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def limits(folder: Path | None = None) -> dict[str, object]:
    """Names the machine and measures all of its limits, with a folder's disk."""
    return {
        "benchmark": "machine",
        **facts(),
        "fdatasync_per_second": round(fdatasync_per_second(folder)),
        "loopback_round_trips_per_second": round(loopback_round_trips_per_second()),
        "memory_copy_bytes_per_second": round(memory_copy_bytes_per_second()),
        "append_bytes_per_second": round(append_bytes_per_second(folder)),
    }


def memory_copy_bytes_per_second(count: int = 64 * MIB) -> float:
    """Copies bytes from one place in memory to another."""
    source, target = memoryview(bytearray(count)), memoryview(bytearray(count))

    def work() -> None:
        target[:] = source

    work()
    return rate(count, work)


def append_bytes_per_second(folder: Path | None = None, count: int = 128 * MIB) -> float:
    """Appends 1 MiB after the other to a file, and flushes once at the end."""
    block = os.urandom(MIB)
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()

        def work() -> None:
            for _ in range(count // MIB):
                os.write(descriptor, block)
            os.fdatasync(descriptor)

        return rate(count, work)


def fdatasync_per_second(folder: Path | None = None, count: int = 300) -> float:
    """Appends 4 KiB and calls fdatasync, one after the other: durable writes per second."""
    with tempfile.TemporaryFile(dir=folder) as file:
        descriptor = file.fileno()
        os.posix_fallocate(descriptor, 0, RUNS * count * 4096)
        block = os.urandom(4096)

        def work() -> None:
            for _ in range(count):
                os.write(descriptor, block)
                os.fdatasync(descriptor)

        return rate(count, work)


def loopback_round_trips_per_second(count: int = 2_000) -> float:
    """Sends 100 bytes over TCP on loopback and waits for them to come back."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            connection, _ = server.accept()
            with connection:
                while data := connection.recv(4096):
                    connection.sendall(data)

        thread = threading.Thread(target=echo, daemon=True)
        thread.start()
        with socket.create_connection(server.getsockname()) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            message = b"x" * 100

            def work() -> None:
                for _ in range(count):
                    client.sendall(message)
                    received = 0
                    while received < len(message):
                        received += len(client.recv(4096))

            result = rate(count, work)
        thread.join()
        return result
