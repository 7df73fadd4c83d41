"""What a process and all below it have used of processors and memory (Linux)."""

import os
from pathlib import Path

__all__ = ["cpu_seconds", "peak_mib"]


def _below(root: int) -> dict[int, list[str]]:
    """Returns the fields of `stat` behind the name, of a process and of all below it."""
    fields: dict[int, list[str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(stat.parent.name)] = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue

    def ours(number: int) -> bool:
        while number not in {0, root}:
            number = int(fields[number][1]) if number in fields else 0
        return number != 0

    return {number: found for number, found in fields.items() if ours(number)}


def cpu_seconds(*roots: int) -> float:
    """The processor time of processes and all below them, those that have ended included."""
    ticks = sum(sum(map(int, found[11:15])) for root in roots for found in _below(root).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_mib(root: int) -> dict[str, int]:
    """The most memory that the driver, its Java, and the largest Python worker have held, in MiB."""
    peaks = {"driver": 0, "java": 0, "worker": 0}
    for number in _below(root):
        try:
            status = Path(f"/proc/{number}/status").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        said = dict(line.split(":", 1) for line in status.splitlines())
        if "VmHWM" not in said:
            continue
        role = "driver" if number == root else "java" if "java" in said["Name"] else "worker"
        peaks[role] = max(peaks[role], int(said["VmHWM"].split()[0]) >> 10)
    return peaks
