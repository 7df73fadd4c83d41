"""
How many times as good ours is as each of the others, and which target that meets.

Sits between: the lines of a run and its page. It must never know how lines are measured.
"""

from collections.abc import Sequence

from benchmarks.lines import Line

__all__ = ["best", "is_durable", "is_time", "name", "order", "ratio", "sentences"]

OURS = "headrace"
# What ours must do at least, in times of the best of the others with the same promise.
DURABLE_TARGET, OTHER_TARGET = 2.0, 1.5
# Workloads with such a target; of latencies there is one of its own.
RATED = ("W1", "W2", "W3", "W5")


def is_durable(line: Line) -> bool:
    """Whether an acknowledgement came after a flush."""
    return bool(line["mode"] == "always")


def is_time(line: Line) -> bool:
    """Whether how long it takes is the result, and not how many there were."""
    return "p50_us" in line and (line["workload"] == "W4" or "one at a time" in line["case"])


def name(line: Line) -> str:
    """A system as a reader knows it."""
    return f"{line['system'].replace('_', ' ')}, {line['mode']}"


def order(line: Line) -> float:
    """Less is better."""
    return float(line["p50_us"] if is_time(line) else -line["per_second"])


def ratio(ours: Line, other: Line) -> float:
    """How many times as fast ours was."""
    if is_time(ours):
        return float(other["p50_us"] / ours["p50_us"])
    return float(ours["per_second"] / other["per_second"])


def best(lines: Sequence[Line], *, durable: bool) -> tuple[Line | None, Line | None]:
    """Ours and the best of the others of one promise; nothing where there is none."""
    same = sorted((line for line in lines if is_durable(line) is durable), key=order)
    ours = next((line for line in same if line["system"] == OURS), None)
    other = next((line for line in same if line["system"] != OURS), None)
    return ours, other


def sentences(case: Sequence[Line]) -> list[str]:
    """What a case says about the targets, one sentence for each promise."""
    found = []
    for durable in (True, False):
        ours, other = best(case, durable=durable)
        if ours is None or other is None:
            continue
        if ours["workload"] == "W4":
            if durable:
                found.append(_latency(case, ours, other))
            continue
        when = "After a flush" if durable else "Without one"
        said = f"{when} ours is {ratio(ours, other):.2f} times as fast as the best of the others, {name(other)}"
        if is_time(ours) or ours["workload"] not in RATED:
            found.append(f"{said}.")
            continue
        target = DURABLE_TARGET if durable else OTHER_TARGET
        met = ratio(ours, other) >= target
        found.append(f"{said}: the target of {target:g} is {'met' if met else 'missed'}.")
    return found


def _latency(case: Sequence[Line], ours: Line, other: Line) -> str:
    others = [line for line in case if is_durable(line) and line["system"] != OURS]
    tail = min(others, key=lambda line: line["p99_us"])
    met = ours["p50_us"] <= other["p50_us"] and ours["p99_us"] <= tail["p99_us"]
    return (
        f"After a flush the median is {ours['p50_us'] / 1e3:.2f} ms, and {other['p50_us'] / 1e3:.2f} of the "
        f"best of the others ({name(other)}); the slowest hundredth begins at {ours['p99_us'] / 1e3:.2f} ms, "
        f"and at {tail['p99_us'] / 1e3:.2f} of the best ({name(tail)}): the target, to be no worse in both, "
        f"is {'met' if met else 'missed'}."
    )
