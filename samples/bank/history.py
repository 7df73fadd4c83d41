"""
A year of the bank's events, each recorded on its own day: the seeds, as an event topic holds them.

    python -m samples.bank.history 127.0.0.1:9876

fills that broker. Without an address it fills a broker of its own, prints where that is, and serves it until
standard input ends. The notebook `events.ipynb` begins with it.
"""

import asyncio
import csv
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.domain.message import DomainEvent
from headrace.domain.stream import EventStream
from headrace.events.publisher import event_topic
from headrace_mq import Broker, BrokerSettings, Message, Producer, StoreSettings
from samples.bank import app
from samples.bank.accounts import AccountOpened, Deposited, Withdrawn
from samples.bank.demo.data_set import read_bank

SEEDS = Path(__file__).parents[2] / "seeds" / "bank"
QUEUES = 4


def history(folder: Path = SEEDS) -> Iterator[EventStream]:
    """Yields the events of accounts and transactions, in the order in which they happened."""
    bank = read_bank(folder)
    with (folder / "transactions.csv").open(encoding="utf-8", newline="") as file:
        days = {row["transaction_id"]: row["date"] for row in csv.DictReader(file)}
    versions: dict[str, int] = {}

    def stream(account_id: str, at: datetime, event: DomainEvent) -> EventStream:
        version = versions[account_id] = versions.get(account_id, 0) + 1
        return EventStream(
            aggregate_type="Account",
            aggregate_id=account_id,
            version=version,
            command_id=f"{account_id}-{version}",
            correlation_id=f"{account_id}-{version}",
            recorded_at=at,
            events=(event,),
        )

    for number, one in enumerate(bank.transactions):
        day = datetime.fromisoformat(days[one.transaction_id]).replace(hour=9, tzinfo=UTC)
        at = day + timedelta(seconds=number)
        if one.account_id not in versions:
            terms = bank.accounts[one.account_id]
            opened = AccountOpened(owner=terms.owner, overdraft_limit=terms.overdraft_limit)
            yield stream(one.account_id, at, opened)
        kind = Deposited if one.amount > 0 else Withdrawn
        moved = kind(
            transaction_id=one.transaction_id,
            amount=abs(one.amount),
            balance=one.balance_after,
        )
        yield stream(one.account_id, at, moved)


async def send_history(broker: str, folder: Path = SEEDS) -> None:
    """Sends these events to the event topic of the bank."""
    topic = event_topic(app.name)
    messages = [
        Message(
            topic=topic,
            key=one.aggregate_id,
            tag=one.aggregate_type,
            headers={"kind": "events"},
            body=app.serializer.encode_stream(one),
        )
        for one in history(folder)
    ]
    async with Producer(broker) as producer:
        await producer.create_topic(topic, queues=QUEUES, retention="forever")
        await producer.send_many(messages)


async def serve_history() -> None:
    """Serves these events by a broker of its own, in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="bank-history-") as folder:
        settings = BrokerSettings(
            store=StoreSettings(directory=Path(folder), flush="interval"), port=0
        )
        async with Broker(settings) as broker:
            await send_history(broker.address)
            print(broker.address, flush=True)
            await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    address = next(iter(sys.argv[1:]), None)
    asyncio.run(send_history(address) if address else serve_history())
