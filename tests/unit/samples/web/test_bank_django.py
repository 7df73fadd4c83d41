"""The bank behind Django, over a real broker: in a process of its own, as Django's settings are global."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from headrace import Settings
from headrace_mq import Broker
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app

ROOT = Path(__file__).parents[4]
SECONDS_MAX = 60

CALLS = """
import json
import django
from samples.web import bank_django
from django.test import Client

django.setup()
client = Client()


def post(path, key, **body):
    headers = {"Idempotency-Key": key}
    answer = client.post(path, json.dumps(body), content_type="application/json", headers=headers)
    return answer.status_code, answer.json()


print(json.dumps([
    post("/accounts/ann/open", "open-ann", owner="Ann"),
    post("/accounts/ann/open", "open-ann", owner="Ann"),
    post("/accounts/ann/open", "other", owner="Ann"),
    post("/accounts/ann/deposits", "t-1", amount=5),
    post("/accounts/ann/deposits", "t-1", amount=5),
    client.get("/accounts/ann").json()["balance"],
    client.get("/accounts/bob").status_code,
    client.get("/accounts/ann/open").status_code,
]))
bank_django.bus.close()
"""


@pytest.mark.slow
async def test_accounts_are_opened_paid_into_and_shown(tmp_path: Path) -> None:
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    read_models = f"sqlite:///{tmp_path}/read.db"
    async with Broker(BrokerSettings(port=0, store=store)) as broker:
        settings = Settings(broker=broker.address, read_models=read_models)
        environment = {"HEADRACE_BROKER": broker.address, "HEADRACE_READ_MODELS": read_models}
        async with app.run(settings):
            calling = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CALLS, cwd=tmp_path,
                env=os.environ | environment | {"PYTHONPATH": str(ROOT)},
                stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, errors = await asyncio.wait_for(calling.communicate(), SECONDS_MAX)
    assert calling.returncode == 0, errors.decode()
    opened, again, other, paid, same, balance, missing, method = json.loads(out)
    assert opened == again == [200, {"version": 1, "value": None}]
    assert (other[0], other[1]["error"]) == (409, "AggregateExists")
    assert paid == same == [200, {"version": 2, "value": {"balance": 5}}]
    assert (balance, missing, method) == (5, 404, 405)
