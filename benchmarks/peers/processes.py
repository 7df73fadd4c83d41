"""A server's processes: the one that was started and what it has started in turn (Linux)."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

__all__ = ["family", "held_bytes"]


def family(pids: Sequence[int]) -> list[int]:
    """Returns processes and all their descendants that live."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found = [pid for pid in pids if pid in parents]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def held_bytes(pids: Sequence[int]) -> int:
    """The memory that processes hold together, in bytes: what they share is counted once."""
    held = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            held += int(rollup.partition("\nPss:")[2].split(maxsplit=1)[0]) * 1024
    return held
