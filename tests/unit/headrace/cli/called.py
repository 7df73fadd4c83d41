"""The command line, called in the test's own process: the start of a process takes longer than most commands.

Tests whose subject is a process (its streams, its signals, what it loads) start one.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess

import pytest
import structlog

import headrace.cli


@contextmanager
def _logs_as_they_were() -> Iterator[None]:
    configured, before = structlog.is_configured(), structlog.get_config()
    try:
        yield
    finally:
        if configured:
            structlog.configure(**before)
        else:
            structlog.reset_defaults()


def call(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> "CompletedProcess[str]":
    """Calls `headrace` as a user does; an error that would be a traceback is raised.

    Args:
        arguments: behind `headrace`.
        cwd: folder in which it is called; modules that it loads from there are forgotten afterwards.
        env: all its variables; those of the test if there are none.
    """
    output, errors, known = StringIO(), StringIO(), set(sys.modules)
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(output),
        redirect_stderr(errors),
        _logs_as_they_were(),
    ):
        if cwd is not None:
            patch.chdir(cwd)
        if env is not None:
            for name in os.environ.keys() - env.keys():
                patch.delenv(name)
            for name, value in env.items():
                patch.setenv(name, value)
        patch.setattr(sys, "argv", ["headrace", *arguments])
        patch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as ended:
            headrace.cli.main()
    for name in sys.modules.keys() - known:
        file = getattr(sys.modules[name], "__file__", None)
        if cwd is not None and file and Path(file).resolve().parent == cwd.resolve():
            del sys.modules[name]
    code = ended.value.code
    assert code is None or isinstance(code, int), code
    return CompletedProcess(arguments, code or 0, output.getvalue(), errors.getvalue())
