"""A burst waits in the queue until the service has worked it off."""

from pathlib import Path

import pytest

from headrace_mq.testing.embedded import broker
from samples.peak import Moment, Plan, main, play, plot

SHORT = Plan(service=1_000, quiet=100, burst=5_000, quiet_s=0.2, burst_s=0.4, look_s=0.05)


async def test_the_backlog_rises_and_falls_and_each_order_is_handled_once() -> None:
    async with broker() as address:
        moments = await play(address, SHORT)
        backlogs = [one.backlog for one in moments]
        # What came in the burst beyond what the service handles, at least in part: a slow machine sends fewer.
        assert max(backlogs) > 200
        assert backlogs[-1] == 0
        assert any(one.send_ms > 0 for one in moments)
        # A second time, with the same topic.
        assert (await play(address, SHORT._replace(burst_s=0.1)))[-1].backlog == 0


def test_an_address_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "address" in capsys.readouterr().err


def test_the_plot_is_a_file(tmp_path: Path) -> None:
    plot(tmp_path / "peak.svg", [Moment(0.5, 50, 50, 1.0), Moment(1.0, 5_000, 400, 1.2)])
    assert (tmp_path / "peak.svg").read_text().count("<svg") == 1
