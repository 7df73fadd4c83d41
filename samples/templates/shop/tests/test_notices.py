"""Which notices are sent to which reader."""

import pytest
from headrace.testing.history import History

from shop import app
from shop.products import ProductIntroduced, Received, Sold


async def test_the_last_piece_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    history = History()
    history.happened("tea", ProductIntroduced(title="Green tea"))
    history.happened("tea", Received(pieces=2))
    history.happened("tea", Sold(pieces=1, left=1))
    history.happened("tea", Sold(pieces=1, left=0))
    await history.handle(app.event_handlers("events"))
    assert capsys.readouterr().out == "tea is sold out\n"
