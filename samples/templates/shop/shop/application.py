"""The application: its parts, and a handler for each command."""

from headrace import App, CommandContext

from shop.notices import notify
from shop.products import Introduce, Product, Receive, Sell
from shop.stock import stock

__all__ = ["app"]

app = App("shop")
app.add(Product, stock)
app.on_event(notify)


@app.handles
async def introduce(command: Introduce, context: CommandContext) -> None:
    """A new product."""
    product = Product(command.product_id)
    product.introduce(command.title)
    context.add(product)


@app.handles
async def receive(command: Receive, context: CommandContext) -> None:
    """Pieces arrived."""
    product = await context.get(Product, command.product_id)
    product.receive(command.pieces)


@app.handles
async def sell(command: Sell, context: CommandContext) -> None:
    """A customer buys."""
    product = await context.get(Product, command.product_id)
    product.sell(command.pieces)
    context.set_result({"left": product.pieces})
