"""Processes of an application tell their settings next to their metrics, and differences are marked."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from headrace.alarms.calls import BoundedCalls
from headrace.alarms.settings import AlarmSettings
from headrace.metrics import services as subject
from headrace.metrics.services import ProcessAddress, plain_services, services_shown
from headrace_mq.metrics.listener import MetricsListener

Start = Callable[[bytes | None], Awaitable[ProcessAddress]]


def told(*settings: tuple[str, str, str]) -> bytes:
    rows = [
        {"name": name, "value": value, "default": "1", "source": source}
        for name, value, source in settings
    ]
    return msgspec.json.encode(rows)


async def text() -> bytes:
    return b"up 1\n"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine answers late."""
    monkeypatch.setattr(subject, "_WITHIN_S", 60.0)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    started: list[MetricsListener] = []

    async def begin(settings: bytes | None) -> ProcessAddress:
        listener = MetricsListener("127.0.0.1:0", text, settings)
        await listener.start()
        started.append(listener)
        return ProcessAddress(f"http://{listener.address}/metrics")

    yield begin
    for one in started:
        await one.aclose()


async def test_settings_of_two_processes_stand_next_to_each_other(start: Start) -> None:
    same = ("lag_ms_max", "1", "default")
    one = await start(told(("name", "till-1", "--name"), ("retry_ms_min", "5", "shop.toml"), same))
    two = await start(told(("name", "till-2", "--name"), ("retry_ms_min", "1", "default"), same))
    found = plain_services(await services_shown([one, two]))
    assert (found["services"], found["silent"]) == ([one.name, two.name], {})
    settings = {each["name"]: each for each in found["settings"]}
    assert [name for name, each in settings.items() if each["differs"]] == ["retry_ms_min"]
    assert [name for name, each in settings.items() if each["given"]] == ["name", "retry_ms_min"]
    assert settings["retry_ms_min"]["unit"] == "milliseconds"
    assert settings["retry_ms_min"]["services"] == [
        {"service": one.name, "value": "5", "source": "shop.toml"},
        {"service": two.name, "value": "1", "source": "default"},
    ]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (None, "it does not tell its settings: update it"),
        (b"<html>", "what it answers is no list of settings"),
        (b'[{"name": 1}]', "what it answers is no list of settings"),
    ],
)
async def test_a_process_that_does_not_tell_says_why_and_others_are_shown(
    start: Start, answer: bytes | None, sentence: str
) -> None:
    good, bad = await start(told(("lag_ms_max", "1", "default"))), await start(answer)
    found = await services_shown([bad, good])
    assert list(found.brokers) == [good.name]
    assert found.silent[bad.name].startswith(sentence)
    assert [one.name for one in found.settings] == ["lag_ms_max"]


async def test_a_process_that_is_away_says_so() -> None:
    found = await services_shown([ProcessAddress("http://127.0.0.1:1/metrics")])
    assert (found.brokers, found.settings) == ([], [])
    assert "refused" in found.silent["127.0.0.1:1"]


async def test_an_answer_without_an_end_is_given_up(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "ANSWER_BYTES_MAX", 8)
    one = await start(told(("lag_ms_max", "1", "default")))
    assert (await services_shown([one])).silent[one.name].startswith("its answer is too large")


async def test_processes_that_hang_are_given_up_together_and_hold_up_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free = threading.Event()
    every = [ProcessAddress(f"http://h:{port}/metrics") for port in range(1, 31)]
    asked: set[ProcessAddress] = set()

    def hang(one: ProcessAddress) -> str:
        asked.add(one)
        free.wait(60)
        return "it is free"

    monkeypatch.setattr(subject, "_ask", hang)
    calls = BoundedCalls()
    waiting = asyncio.create_task(services_shown(every, calls))
    try:
        async with asyncio.timeout(60):
            while len(asked) < len(every):
                await asyncio.sleep(0)
        # The threads that all share are free.
        assert await asyncio.to_thread(lambda: 7) == 7
        own = [one for one in threading.enumerate() if "http://h:" in one.name]
        assert (len(own), all(one.daemon for one in own)) == (30, True)
        monkeypatch.setattr(subject, "_WITHIN_S", 0.01)
        found = await services_shown(every, calls)
        assert set(found.silent.values()) == {"timed out"}
        own = [one for one in threading.enumerate() if "http://h:" in one.name]
        assert len(own) == 30
    finally:
        free.set()
    assert set((await waiting).silent.values()) == {"it is free"}


async def test_more_processes_than_are_asked_at_once_are_all_asked(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "ASKED_AT_ONCE_MAX", 1)
    both = [await start(told(("lag_ms_max", "1", "default"))) for _ in range(2)]
    assert list((await services_shown(both)).brokers) == [one.name for one in both]


async def test_two_processes_behind_one_host_and_port_are_told_by_their_addresses(
    start: Start,
) -> None:
    one = await start(told(("lag_ms_max", "1", "default")))
    two = ProcessAddress(f"http://{one.name}/b/metrics")
    found = await services_shown([one, two, one])
    assert (found.brokers, list(found.silent)) == ([one.url], [two.url])


def test_settings_stand_next_to_the_metrics() -> None:
    assert ProcessAddress("https://h:1/a/metrics").settings_url == "https://h:1/a/settings"
    assert ProcessAddress("http://h:1/metrics").settings_url == "http://h:1/settings"
    target = {"job": "headrace-run", "url": "https://h:1/metrics", "ca": "ca.pem"}
    broker = {"url": "http://b:1/metrics"}
    settings = AlarmSettings.model_validate({"target": [target, broker]})
    assert settings.services == [("https://h:1/metrics", Path("ca.pem"))]
