"""
The bank's accounts over FastAPI: commands by POST and PUT, rows by GET.

    headrace broker --data var/broker
    headrace run samples.bank:app
    uvicorn --factory samples.web.bank_api:make_web

Uses the bank's commands and read models; runs nothing of the bank itself.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from pydantic import BaseModel, Field

from headrace import Command, CommandBus, CommandResult, Settings
from headrace.errors import CommandRefused, CommandTimeout
from headrace.projections.tables.read_models import ReadModels
from samples.bank import app
from samples.bank.accounts import Deposit, OpenAccount
from samples.bank.read_models import Balance, balances

__all__ = ["make_web"]

LOCAL = Settings(broker="127.0.0.1:9876", read_models="sqlite:///var/read.db")


class Opening(BaseModel):
    owner: str = Field(min_length=1)


class Payment(BaseModel):
    amount: int = Field(gt=0)


def _bus(request: Request) -> CommandBus:
    bus: CommandBus = request.state.bus
    return bus


def _rows(request: Request) -> ReadModels:
    rows: ReadModels = request.state.rows
    return rows


Bus = Annotated[CommandBus, Depends(_bus)]
Rows = Annotated[ReadModels, Depends(_rows)]
# The caller's: the same key again is the same command, and has no second effect.
Key = Annotated[str, Header(alias="Idempotency-Key", min_length=1)]


async def _done(bus: CommandBus, command: Command, key: str) -> CommandResult:
    """Executes a command; a rejection is 409, an outage 503 with the same key to try again."""
    try:
        result = await bus.execute(command, command_id=key, wait_for=[balances])
    except (CommandTimeout, CommandRefused) as error:
        raise HTTPException(503, str(error)) from error
    if result.status == "rejected":
        raise HTTPException(409, {"error": result.error, "sentence": result.sentence})
    if not result.ok:
        raise HTTPException(500, result.sentence)
    return result


def make_web(settings: Settings = LOCAL) -> FastAPI:
    """Returns the web application, for a server such as uvicorn."""

    @asynccontextmanager
    async def lifespan(_web: FastAPI) -> AsyncIterator[dict[str, Any]]:
        rows = ReadModels(settings.read_models)
        async with app.client(settings) as bus:
            yield {"bus": bus, "rows": rows}
        await rows.aclose()

    web = FastAPI(title="The bank", lifespan=lifespan)

    @web.put("/accounts/{name}", status_code=201)
    async def open_account(name: str, body: Opening, bus: Bus, key: Key) -> dict[str, Any]:
        result = await _done(bus, OpenAccount(account_id=name, owner=body.owner), key)
        return {"version": result.version}

    @web.post("/accounts/{name}/deposits")
    async def deposit(name: str, body: Payment, bus: Bus, key: Key) -> Any:
        paid = Deposit(account_id=name, transaction_id=key, amount=body.amount)
        return (await _done(bus, paid, key)).value

    @web.get("/accounts/{name}")
    async def show(name: str, rows: Rows) -> Balance:
        row = await rows.reader(balances).get(name)
        if row is None:
            raise HTTPException(404, f"there is no account {name}")
        return row

    return web
