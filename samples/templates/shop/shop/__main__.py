"""
A client: `python -m shop` runs everything in this process, `python -m shop HOST:PORT` sends to a broker.

A command's id makes it unique for its aggregate. So you may run this twice: nothing is sold twice.
"""

import asyncio
import sys

from headrace import CommandBus, CommandResult, Settings

from shop import app
from shop.products import Introduce, Receive, Sell
from shop.stock import stock


async def main(broker: str | None) -> None:
    """Sends a few commands and prints what came of them."""
    if broker is not None:
        async with app.client(Settings(broker=broker)) as bus:
            await trade(bus)
        return
    async with app.run_local() as running:
        sold = await trade(running.bus)
        await running.seen(stock, sold)
        print(await running.read(stock).get("tea"))


async def trade(bus: CommandBus) -> CommandResult:
    """Introduces tea, receives ten pieces, and sells some; returns the result of the sale."""
    await bus.execute(Introduce(product_id="tea", title="Green tea"), command_id="introduce-tea")
    await bus.execute(Receive(product_id="tea", pieces=10), command_id="delivery-1")
    sold = await bus.execute(Sell(product_id="tea", pieces=4), command_id="order-1")
    print(sold.status, sold.value)
    refused = await bus.execute(Sell(product_id="tea", pieces=7), command_id="order-2")
    print(refused.status, "-", refused.sentence)
    return sold


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else None))
