"""
The broker process of the benchmarks.

    python -m benchmarks.mq.broker DIRECTORY always|interval
"""

import sys
from pathlib import Path
from typing import Literal

import structlog

from headrace_mq.broker.server import run
from headrace_mq.settings import BrokerSettings, StoreSettings


def main() -> None:
    directory, asked = sys.argv[1:]
    flush: Literal["always", "interval"] = "interval" if asked == "interval" else "always"
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    store = StoreSettings(directory=Path(directory), flush=flush)
    run(
        BrokerSettings(store=store, port=0),
        ready=lambda address: print("ready", address, flush=True),
    )


if __name__ == "__main__":
    main()
