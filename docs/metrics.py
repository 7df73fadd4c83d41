"""
Writes the tables of metrics in `metrics.md` from the tables in the code.

Run it after a change of a metric, from the project's folder: `python docs/metrics.py`. A test fails until that is
done. Reads the tables that the text for Prometheus is made of.
"""

from pathlib import Path
from typing import Final

from headrace.metrics.table import APP_METRICS
from headrace_mq.broker.metrics.table import BROKER_METRICS
from headrace_mq.metrics.table import markdown
from headrace_mq.nameserver.metrics import NAME_SERVER_METRICS

__all__ = ["PAGE", "with_tables"]

PAGE: Final = Path(__file__).parent / "metrics.md"
TABLES: Final = {
    "broker": BROKER_METRICS,
    "nameserver": NAME_SERVER_METRICS,
    "application": APP_METRICS,
}


def with_tables(page: str) -> str:
    """Returns the page with each table between its two marks."""
    for name, metrics in TABLES.items():
        begin, end = f"<!-- {name} metrics: begin -->\n", f"<!-- {name} metrics: end -->\n"
        before, _, rest = page.partition(begin)
        _, mark, after = rest.partition(end)
        if not mark:
            raise ValueError(f"{PAGE.name} lacks the lines {begin.strip()} and {end.strip()}")
        page = f"{before}{begin}\n{markdown(metrics)}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
