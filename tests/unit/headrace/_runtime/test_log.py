"""Log lines go where the program wants them, and never to standard output by themselves."""

import subprocess
import sys

PROGRAM = """
import sys
{setup}
from headrace._runtime.log import get_logger
log = get_logger("shop")
def fail():
    password = "hunter" + "2"
    raise ValueError("no")
log.debug("too small")
log.warning("it happened", count=1, name="x")
try:
    fail()
except ValueError:
    log.exception("it failed", key="k")
"""


def said(setup: str = "") -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(setup=setup)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


def test_without_a_word_of_configuration_standard_output_stays_empty() -> None:
    output, errors = said()
    assert output == ""
    lines = errors.splitlines()
    assert lines[0] == "it happened count=1 name='x'"
    assert lines[1] == "it failed key='k'"
    assert lines[-1] == "ValueError: no"
    assert "hunter2" not in errors


def test_logging_decides_where_structlog_is_not_configured() -> None:
    setup = "import logging; logging.basicConfig(level='DEBUG', stream=sys.stdout, format='%(name)s %(levelname)s %(message)s')"
    output, errors = said(setup)
    assert errors == ""
    assert output.splitlines()[:2] == [
        "shop DEBUG too small",
        "shop WARNING it happened count=1 name='x'",
    ]


def test_structlog_decides_where_it_is_configured_before_or_after() -> None:
    setup = (
        "import structlog; structlog.configure(processors=[structlog.processors.JSONRenderer()],"
        " logger_factory=structlog.PrintLoggerFactory(sys.stdout))"
    )
    output, errors = said(setup)
    assert errors == ""
    assert output.splitlines()[1] == '{"count": 1, "name": "x", "event": "it happened"}'
