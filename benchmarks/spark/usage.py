"""What a process and all below it have used of processors and memory (Linux)."""

import os
from pathlib import Path

__all__ = ["cpu_seconds", "cpu_ticks", "peak_mib"]


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


def cpu_ticks(*roots: int) -> dict[int, int]:
    """The processor time that each process has used so far, of some and all below them."""
    return {
        number: int(found[11]) + int(found[12])
        for root in roots
        for number, found in _below(root).items()
    }


def cpu_seconds(before: dict[int, int], after: dict[int, int]) -> float:
    """What the processes of the second measurement have used since the first.

    Spark ends workers that had nothing to do for a minute; those that are gone do not count.
    """
    ticks = sum(used - before.get(number, 0) for number, used in after.items())
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
