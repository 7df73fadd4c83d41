"""The whole application, in one process."""

from shop import app
from shop.products import Introduce, Receive, Sell
from shop.stock import stock


async def test_what_is_sold_is_seen() -> None:
    async with app.run_local() as running:
        await running.bus.execute(Introduce(product_id="tea", title="Green tea"))
        await running.bus.execute(Receive(product_id="tea", pieces=10))
        sold = await running.bus.execute(Sell(product_id="tea", pieces=4), wait_for=[stock])
        assert sold.value == {"left": 6}

        refused = await running.bus.execute(Sell(product_id="tea", pieces=7))
        assert (refused.status, refused.error) == ("rejected", "OutOfStock")

        row = await running.read(stock).get("tea")
        assert row is not None
        assert (row.pieces, row.sold) == (6, 4)
