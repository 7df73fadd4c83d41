"""Figures are read as Prometheus reads them, and an answer that is none of these is an error."""

import urllib.error
from http.client import HTTPException

import pytest

from headrace.alarms.promql.history import Figure
from headrace.alarms.settings import AlarmTarget
from headrace.alarms.targets import ask_targets, figures_of, read_target

TEXT = """\
# HELP headrace_broker_leads x
# TYPE headrace_broker_leads gauge
headrace_broker_leads{group="g\\"1"} 1.0
# TYPE headrace_broker_dead_letters counter
headrace_broker_dead_letters_total{topic="a"} 3.0
"""


def test_figures_have_names_labels_and_values() -> None:
    assert list(figures_of(TEXT)) == [
        Figure("headrace_broker_leads", {"group": 'g"1'}, 1.0),
        Figure("headrace_broker_dead_letters_total", {"topic": "a"}, 3.0),
    ]


def test_a_target_is_read_over_http(posted) -> None:
    posted.text = TEXT
    target = AlarmTarget(url=f"{posted.url}/metrics")
    assert len(read_target(target, timeout_s=60, bytes_max=10_000)) == 2
    with pytest.raises(ValueError, match="more than 10 bytes"):
        read_target(target, timeout_s=60, bytes_max=10)
    posted.text = "<html>"
    with pytest.raises(ValueError, match=r"."):
        read_target(target, timeout_s=60, bytes_max=10_000)


@pytest.mark.parametrize("status", [302, 500])
def test_a_target_that_answers_without_success_is_an_error(posted, status: int) -> None:
    posted.status = status
    target = AlarmTarget(url=f"{posted.url}/metrics")
    with pytest.raises(urllib.error.HTTPError):
        read_target(target, timeout_s=60, bytes_max=10_000)


async def test_a_target_that_does_not_answer_says_why_and_others_answer() -> None:
    one, other = AlarmTarget(url="http://a:1/metrics"), AlarmTarget(url="http://b:1/metrics")

    def read(target: AlarmTarget) -> list[Figure]:
        if target is one:
            raise HTTPException
        return []

    answers = await ask_targets([one, other], read)
    assert [(each.figures, each.sentence) for each in answers] == [
        (None, "HTTPException"),
        ([], ""),
    ]
