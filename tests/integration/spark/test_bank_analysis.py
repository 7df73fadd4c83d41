"""The bank's analysis of exported events says what a plain loop over the same events says."""

from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.domain.stream import EventStream
from headrace.spark.analysis.export import export_events
from headrace_mq.client.producer.producer import Producer
from headrace_mq.message import Message
from samples.bank import app
from samples.bank.accounts import AccountOpened, Deposited, Withdrawn
from samples.bank.analysis import analyse, read_events, tell

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

START = datetime(2026, 1, 29, 12, tzinfo=UTC)
ACCOUNTS, DAYS = 4, 8


def history() -> list[tuple[date, EventStream]]:
    """Each account is opened a day after the one before and moves money once a day."""
    made = []
    for number in range(ACCOUNTS):
        balance, events = 0, [AccountOpened(owner="o", overdraft_limit=None)]
        for day in range(number, DAYS):
            amount = 10 + number if day != DAYS - 1 or number else 5_000
            balance += amount if day % 3 else -amount
            kind = Deposited if day % 3 else Withdrawn
            events.append(kind(transaction_id=f"{number}-{day}", amount=amount, balance=balance))
        for version, event in enumerate(events, start=1):
            day = number + max(version - 2, 0)
            stream = EventStream(
                aggregate_type="Account", aggregate_id=f"a{number}", version=version,
                command_id=f"{number}-{version}", correlation_id="c",
                recorded_at=START + timedelta(days=day), events=(event,),
            )  # fmt: skip
            made.append(((START + timedelta(days=day)).date(), stream))
    return made


@pytest.fixture
async def exported(broker: Any, tmp_path: Path) -> Path:
    """The history, exported."""
    async with Producer(broker.address) as producer:
        await producer.create_topic("bank.events", queues=2, retention="forever")
        for _, stream in history():
            body = app.serializer.encode_stream(stream)
            await producer.send(Message(topic="bank.events", key=stream.aggregate_id, body=body))
    part = export_events("samples.bank:app", tmp_path / "out", broker=broker.address)
    assert part.messages == len(history())
    return tmp_path / "out"


async def test_the_tables_and_plots_say_what_a_plain_loop_says(
    spark: Any, exported: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    volumes: dict[date, list[int]] = defaultdict(lambda: [0, 0])
    ends: dict[tuple[date, date], int] = defaultdict(int)
    for day, stream in history():
        [event] = stream.events
        if isinstance(event, Deposited | Withdrawn):
            volumes[day][isinstance(event, Withdrawn)] += event.amount
            opened = START.date() + timedelta(days=int(stream.aggregate_id[1:]))
            ends[opened, day] = event.balance
    tables = analyse(spark, exported, tmp_path / "plots")
    told = tables["days"]
    assert [(row.day, [row.paid_in, row.paid_out]) for row in told] == sorted(volumes.items())
    assert {(row.cohort, row.day): row.balance for row in tables["cohorts"]} == ends
    [unusual] = tables["unusual"]
    assert (unusual.account, abs(unusual.amount), unusual.usual) == ("a0", 5_000, 10.0)
    assert read_events(spark, exported, "MoneySent") is None
    assert sorted(path.name for path in (tmp_path / "plots").iterdir()) == [
        "cohort-balances.png",
        "daily-volumes.png",
    ]
    tell(tables)
    printed = capsys.readouterr().out
    assert f"accounts opened on {START.date()} hold {ends[START.date(), max(volumes)]:,}" in printed
    assert "unusual: Deposited of 5,000 by a0, usually 10" in printed
