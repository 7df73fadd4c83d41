"""Errors become a status and keep their sentence."""

import pytest
from sqlalchemy.exc import OperationalError

from headrace import errors as framework
from headrace.console.problems import Mistake, problem_of
from headrace.gateway.problems import Problem
from headrace_mq import errors


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Mistake("to is missing"), 422),
        (errors.NotPermitted("ann may not read cluster"), 403),
        (errors.TopicNotFound("there is no topic"), 404),
        (errors.GroupNotEmpty("it has members"), 409),
        (errors.OffsetOutOfRange("too far"), 422),
        (errors.LoginFailed("the password is wrong"), 401),
        (errors.ConnectionLost("no broker answers"), 503),
        (errors.RequestTimeout("no answer"), 503),
        (framework.AggregateNotFound("there is no aggregate"), 404),
        (framework.SchemaOutOfDate("run headrace db upgrade"), 503),
        (framework.RebuildRunning("another rebuild runs"), 409),
    ],
)
def test_an_error_keeps_its_sentence(error: Exception, status: int) -> None:
    problem = problem_of(error)
    assert (problem.status, str(problem)) == (status, str(error))


def test_a_database_that_is_away_is_named_without_its_statement() -> None:
    error = OperationalError("SELECT secret", {"name": "ann"}, Exception("connection refused"))
    problem = problem_of(error)
    assert problem.status == 503
    assert "connection refused" in str(problem)
    assert "SELECT" not in str(problem)


def test_a_problem_stays_what_it_is() -> None:
    problem = Problem(421, "misdirected", "Misdirected", "not here")
    assert problem_of(problem) is problem


def test_a_defect_of_ours_is_raised() -> None:
    with pytest.raises(KeyError):
        problem_of(KeyError("x"))
