"""A real `headrace run` tells Prometheus what its commands, projections and HTTP requests come to."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.metrics.table import APP_METRICS
from headrace.stores.database.schema import upgrade
from headrace_mq.broker.server import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings

ROOT = Path(__file__).parents[3]
Found = dict[tuple[str, ...], float]


def fetched(url: str, command: dict[str, Any] | None = None) -> str:
    """The text of an answer, whatever its status."""
    body = None if command is None else json.dumps(command).encode()
    headers = {"Content-Type": "application/json", "Prefer": "wait=20"}
    request = urllib.request.Request(url, data=body, headers=headers if body else {})
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return str(answer.read().decode())
    except urllib.error.HTTPError as error:
        return str(error.read().decode())


async def scrape(port: int) -> Found:
    """The series of a process by their names, without the prefix, and the values of their labels."""
    order = {name: one.labels for one in APP_METRICS for name in one.series_names}
    text = await asyncio.to_thread(fetched, f"http://127.0.0.1:{port}/metrics")
    return {
        (
            sample.name.removeprefix("headrace_app_"),
            *(sample.labels[label] for label in order[sample.name]),
            *([sample.labels["le"]] if "le" in sample.labels else []),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@asynccontextmanager
async def running(folder: Path, *options: str) -> AsyncIterator[str]:
    """Runs the bank against a broker; yields where it serves HTTP."""
    store = StoreSettings(directory=folder / "broker", segment_bytes=1 << 20)
    async with Broker(BrokerSettings(port=0, store=store)) as broker:
        for name in ("events", "read"):
            await upgrade(f"sqlite:///{folder}/{name}.db")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "headrace", "run", "samples.bank:app",
            "--broker", broker.address, "--event-store", f"sqlite:///{folder}/events.db",
            "--read-models", f"sqlite:///{folder}/read.db", "--http", "127.0.0.1:0", *options,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert child.stdout is not None
        try:
            while line := (await child.stdout.readline()).decode():
                if found := re.match(r"headrace run ready on (\S+)", line):
                    yield found[1]
                    break
            else:
                raise AssertionError("it ended before it was ready")
        finally:
            if child.returncode is None:
                child.send_signal(signal.SIGTERM)
            await child.communicate()


@pytest.fixture
async def bank(tmp_path: Path, free_port: Callable[[], int]) -> AsyncIterator[tuple[str, int]]:
    port = free_port()
    async with running(tmp_path, "--metrics", f"127.0.0.1:{port}") as http:
        yield http, port


async def test_an_application_tells_what_its_commands_came_to(bank: tuple[str, int]) -> None:
    http, port = bank
    for name in ("ann", "bob", "ann"):
        command = {"account_id": name, "owner": name}
        await asyncio.to_thread(fetched, f"{http}/commands/OpenAccount", command)
    await asyncio.to_thread(fetched, f"{http}/nowhere")
    async with asyncio.timeout(60):
        # The database is asked every five seconds at most.
        while (found := await scrape(port)).get(("projection_position", "balances"), 0) < 3:
            pass
    assert found["commands_total", "executed"] == 2
    assert found["commands_total", "rejected"] == 1
    assert found["command_handler_seconds_count", "OpenAccount"] == 3
    assert found["commit_seconds_count",] >= 2
    assert found["cache_hits_total",] >= 1
    assert found["reader_messages_total", "projection balances"] == 3
    assert found["projection_lag_messages", "balances"] == 0
    assert found["reader_state", "projection balances", "running"] == 1
    assert found["http_requests_total", "commands", "200"] == 2
    assert found["http_requests_total", "other", "404"] == 1
    assert found["parked", "commands"] == found["lag_unknown",] == found["read_only",] == 0
    names = {name for one in APP_METRICS for name in one.series_names}
    silent = names - {f"headrace_app_{name}" for name, *_ in found} - {name for name, *_ in found}
    assert silent == {
        "headrace_app_parked_oldest_seconds", "headrace_app_alarm",
        "headrace_app_certificate_expires_seconds",
        *(f"headrace_app_event_handler_seconds_{part}" for part in ("bucket", "count", "sum")),
    }  # fmt: skip


async def test_an_application_without_room_for_its_metrics_says_so_in_one_sentence(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
        async with Broker(BrokerSettings(port=0, store=store)) as broker:
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "headrace", "run", "samples.bank:app",
                "--broker", broker.address, "--event-store", "memory://", "--read-models",
                "sqlite://", "--metrics", place,
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": str(ROOT)},
            )  # fmt: skip
            _, said = await child.communicate()
    assert child.returncode == 2
    last = said.decode().splitlines()[-1]
    assert last.startswith(
        f"headrace: cannot serve metrics on {place} (Address already in use): stop"
    )
