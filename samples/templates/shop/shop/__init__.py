"""Products in stock; `headrace run shop:app` runs the application."""

from shop.application import app

__all__ = ["app"]
