"""`headrace projection follow`: what it passes on, and what it tells; Spark's side is replaced."""

import json
import os
import signal
from types import SimpleNamespace
from typing import Any

import pytest

import headrace.spark.session
import headrace.spark.stream.continuous
from headrace.spark.stream.continuous import Followed
from headrace.spark.stream.sink import AppliedBatch

OFFSETS = {("bank.events", 0): 1_200, ("bank.events", 1): 34}


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Notes how sessions and jobs are started; a job applies two batches."""
    seen = SimpleNamespace(sessions=[], jobs=[], stopped=0, signalled=False, parked=0)

    def stop() -> None:
        seen.stopped += 1

    def started(**choices: Any) -> Any:
        seen.sessions.append(choices)
        return SimpleNamespace(stop=stop)

    async def follow(app: str, name: str, **choices: Any) -> Followed:
        seen.jobs.append((app, name, choices))
        await choices["spark"].get()
        for here in (True, False):
            choices["report"](AppliedBatch(messages=1_204, rows=310, here=here, offsets=OFFSETS))
        if seen.signalled:
            os.kill(os.getpid(), signal.SIGTERM)
            await choices["stop"].wait()
        return Followed(batches=2, messages=2_408, rows=620, offsets=OFFSETS, parked=seen.parked)

    monkeypatch.setattr(headrace.spark.stream.continuous, "follow", follow)
    monkeypatch.setattr(headrace.spark.session, "open_session", started)
    return seen


FOLLOW = ("projection", "follow", "balances", "--app", "samples.bank:app")


def test_a_line_per_batch_and_one_at_the_end(spark: Any, run: Any) -> None:
    done = run(*FOLLOW, "--available-now", "--batch-max", "9")
    assert done.status == 0, done
    *lines, last = done.output.splitlines()
    assert "projection balances: 1,204 messages, 310 rows; at 0:1,200 1:34" in lines
    assert (
        "projection balances: 1,204 messages, 310 rows, folded on executors; at 0:1,200 1:34"
        in lines
    )
    assert last == "projection balances: 2,408 messages in 2 batches, 620 rows"
    [(app, name, choices)] = spark.jobs
    assert (app, name) == ("samples.bank:app", "balances")
    assert (choices["available_now"], choices["batch_max"]) == (True, 9)
    assert (spark.sessions, spark.stopped) == ([{"master": "", "settings": {}}], 1)


def test_follow_names_parked_aggregates_at_the_end(spark: Any, run: Any) -> None:
    spark.parked = 2
    done = run(*FOLLOW, "--available-now")
    assert done.status == 0, done
    said = " ".join(done.output.split())
    assert "projection balances: 2 aggregates are parked; name them with" in said
    assert "headrace parked list --processor projection:balances" in said


def test_a_signal_asks_the_job_to_stop(spark: Any, run: Any) -> None:
    spark.signalled = True
    before = signal.getsignal(signal.SIGTERM)
    try:
        done = run(*FOLLOW)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (done.status, spark.stopped) == (0, 1)
    assert spark.jobs[0][2]["stop"].is_set()


def test_json_is_a_line_per_batch(spark: Any, run: Any) -> None:
    done = run(*FOLLOW, "--json")
    lines = [json.loads(line) for line in done.output.splitlines() if line.startswith("{")]
    assert lines[0] == {
        "messages": 1_204, "rows": 310, "folded": "here", "parked": 0,
        "offsets": {"bank.events/0": 1_200, "bank.events/1": 34},
    }  # fmt: skip
    assert lines[1]["folded"] == "executors"


def test_a_cluster_gets_its_settings(spark: Any, run: Any) -> None:
    done = run(
        *FOLLOW, "--master", "spark://m:7077", "--conf", "spark.a=b=c", "--conf", "spark.d=1"
    )
    assert done.status == 0, done
    assert spark.sessions == [
        {"master": "spark://m:7077", "settings": {"spark.a": "b=c", "spark.d": "1"}}
    ]


def test_settings_that_are_none_are_refused(spark: Any, run: Any) -> None:
    done = run(*FOLLOW, "--conf", "cores=2")
    assert done.status == 2
    assert "use spark.KEY=VALUE" in done.output
    assert spark.sessions == []
