"""
The broker process of the benchmarks.

    python -m benchmarks.mq.broker DIRECTORY always|interval [BYTES_MAX [BUSY_POLL_US [CERTIFICATES [METRICS]]]]

BYTES_MAX 0 keeps everything. CERTIFICATES is a folder, or empty; METRICS is HOST:PORT.
"""

import sys
from pathlib import Path
from typing import Literal

import structlog
from msgspec import structs

from headrace_mq.broker.process import run
from headrace_mq.settings import BrokerSettings, StoreSettings

# Where only so much is kept, segments are small enough to go one by one.
SEGMENT_BYTES = 64 * 2**20


def main() -> None:
    directory, asked, *more = sys.argv[1:]
    kept_bytes_max, busy_poll_us = (*map(int, more[:2]), 0, 0)[:2]
    certificates = Path(more[2]) if len(more) > 2 and more[2] else None
    metrics = more[3] if len(more) > 3 else None
    flush: Literal["always", "interval"] = "interval" if asked == "interval" else "always"
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    store = StoreSettings(directory=Path(directory), flush=flush)
    if kept_bytes_max:
        store = structs.replace(
            store, segment_bytes=SEGMENT_BYTES, transient_bytes_max=kept_bytes_max
        )
    tls = certificates and (certificates / "server.pem", certificates / "server.key")
    scheme, options = ("tls://", f"?ca={certificates}/ca.pem") if tls else ("", "")
    run(
        BrokerSettings(
            store=store, port=0, busy_poll_us=busy_poll_us, metrics=metrics,
            tls_certificate=tls and tls[0], tls_key=tls and tls[1],
        ),
        ready=lambda address: print(f"ready {scheme}{address}{options}", flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
