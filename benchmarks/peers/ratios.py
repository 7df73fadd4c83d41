"""
How many times as good ours is as each of the others, and which target that meets.

Sits between: the lines of a run and its page. It must never know how lines are measured.
"""

from collections.abc import Sequence

from benchmarks.lines import Line

__all__ = ["best", "is_durable", "is_time", "name", "order", "ratio", "sentences", "why"]

OURS = "headrace"
# What ours must do at least, in times of the best of the others with the same promise.
DURABLE_TARGET, OTHER_TARGET = 2.0, 1.5
# Where it does so many times as much without a flush, it was the disk that it waited for.
WAITS_FROM = 1.25
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
        reasons = "" if met else why(case, ours, other)
        found.append(f"{said}: the target of {target:g} is {'met' if met else 'missed'}.{reasons}")
    return found


def why(case: Sequence[Line], ours: Line, other: Line) -> str:
    """What the run's own figures say of a target that was missed, in sentences that begin with a blank."""
    if not {"server_cpu_us", "client_cpu_us"} <= ours.keys() & other.keys():
        return _spread(ours, other)
    busy = [
        line["per_second"] * (line["server_cpu_us"] + line["client_cpu_us"]) / 1e6
        for line in (ours, other)
    ]
    said = (
        f" Why: ours takes {ours['server_cpu_us']:.2f} us of the server and {ours['client_cpu_us']:.2f} of its clients "
        f"for a message, which at this rate is {busy[0]:.1f} busy cores; the other {other['server_cpu_us']:.2f} and "
        f"{other['client_cpu_us']:.2f}, {busy[1]:.1f} cores."
    )
    unflushed, _ = best(case, durable=False)
    if is_durable(ours) and unflushed is not None:
        said += (
            f" Without a flush ours does {unflushed['per_second']:,} a second in the same run: what is missing "
            "goes to the disk."
            if unflushed["per_second"] > WAITS_FROM * ours["per_second"]
            else f" Without a flush ours does {unflushed['per_second']:,} a second: it is not the disk."
        )
    return said


def _latency(case: Sequence[Line], ours: Line, other: Line) -> str:
    others = [line for line in case if is_durable(line) and line["system"] != OURS]
    tail = min(others, key=lambda line: line["p99_us"])
    met = ours["p50_us"] <= other["p50_us"] and ours["p99_us"] <= tail["p99_us"]
    return (
        f"After a flush the median is {ours['p50_us'] / 1e3:.2f} ms, and {other['p50_us'] / 1e3:.2f} of the "
        f"best of the others ({name(other)}); the slowest hundredth begins at {ours['p99_us'] / 1e3:.2f} ms, "
        f"and at {tail['p99_us'] / 1e3:.2f} of the best ({name(tail)}): the target, to be no worse in both, "
        f"is {'met' if met else 'missed'}."
        + (
            ""
            if met or "server_cpu_us" not in ours.keys() & tail.keys()
            else _awake(case, ours, other, tail)
        )
    )


def _awake(case: Sequence[Line], ours: Line, other: Line, tail: Line) -> str:
    """What so many lone messages cost, in whose processes."""
    said = [
        f"{name(line)} {line['server_cpu_us']:.0f} and {line['client_cpu_us']:.0f}"
        for line in {name(line): line for line in (ours, other, tail)}.values()
    ]
    told = (
        " Why: at this rate no message shares a wake-up, a system call or a flush with another; one takes so many us "
        f"of the server and of its client: {'; '.join(said)}."
    )
    unflushed, _ = best(case, durable=False)
    if unflushed is not None:
        told += (
            f" Without a flush ours has {unflushed['p50_us'] / 1e3:.2f} and {unflushed['p99_us'] / 1e3:.2f} ms: the "
            "rest is the disk's."
        )
    return told


def _spread(ours: Line, other: Line) -> str:
    """How far apart the runs were, where processor time is not known by message."""
    return (
        f" Why: the runs gave {ours['per_second_min']:,} to {ours['per_second_max']:,} a second, and "
        f"{other['per_second_min']:,} to {other['per_second_max']:,}: from "
        f"{ours['per_second_min'] / other['per_second_max']:.2f} to "
        f"{ours['per_second_max'] / other['per_second_min']:.2f} times, one run beside another."
    )
