"""What a run of the benchmark comes to: the best turn of each case, beside what stands for comparison."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["summarize"]

Figure = Mapping[str, Any]

MEASURED = ("source", "source, without headers", "rebuild, declared", "rebuild, folded")
# What each of them is compared with, on as many cores, or without Spark.
YARDSTICKS = {
    "source": ("spark.read.json", "spark.read.parquet"),
    "source, without headers": ("spark.read.json", "spark.read.parquet"),
    "rebuild, declared": ("rebuild without Spark, declared", "plain loop, fold in Python"),
    "rebuild, folded": ("rebuild without Spark, folded", "plain loop, fold in Python"),
}


def summarize(figures: Sequence[Figure]) -> Iterator[dict[str, Any]]:
    """Yields, for one number of events, a figure per case and number of cores.

    Each has the rate of the best turn, how many times that of its yardsticks and of the fewest cores it
    is, and the memory that the driver held at most.
    """
    cores = sorted({each["cores"] for each in figures if "cores" in each})
    for name in MEASURED:
        fewest: int | None = None
        for count in cores:
            rate = _best(figures, name, count)
            if rate is None:
                continue
            fewest = fewest or rate
            yardsticks = {
                other: _best(figures, other, count) or _best(figures, other, None)
                for other in YARDSTICKS[name]
            }
            yield {
                "case": f"{name}, summary",
                "cores": count,
                "per_second": rate,
                "times": {
                    other: round(rate / found, 2) for other, found in yardsticks.items() if found
                },
                "times_fewest_cores": round(rate / fewest, 2),
                "driver_mib": _driver_mib(figures, name.partition(",")[0], count),
            }


def _best(figures: Sequence[Figure], name: str, cores: int | None) -> int | None:
    rates = [
        each["per_second"]
        for each in figures
        if each["case"] == name and each.get("cores") == cores and "per_second" in each
    ]
    return max(rates, default=None)


def _driver_mib(figures: Sequence[Figure], name: str, cores: int) -> int | None:
    found = [
        each["mib"]["driver"]
        for each in figures
        if each["case"] == f"{name}, peak memory" and each.get("cores") == cores
    ]
    return max(found, default=None)
