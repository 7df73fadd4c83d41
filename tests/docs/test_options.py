"""Options that documents name exist: of the command they are written with, or of any."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import typer

from headrace.cli import _command_line

OPTION = re.compile(r"--[a-z][a-z-]+")
# A span or a line of a block that begins with one of our commands; a backslash continues it.
COMMAND = re.compile(r"(?:^|`)headrace ((?:[^`\n\\]|\\\n|\\.)+)", re.MULTILINE)
# A span that is options alone, with what they are given.
ALONE = re.compile(r"`(--[a-z][a-z-]+)[^`]*`")
# Options of other programs that documents name alone.
OTHERS = {"--constraint", "--packages", "--py-files", "--quick", "--strict", "--hypothesis-profile"}


@pytest.fixture(scope="module")
def options() -> Mapping[str, set[str]]:
    """The options of each command, by its words; those of a group of commands too."""
    return dict(_options("", typer.main.get_command(_command_line())))


def _options(words: str, command: Any) -> Iterator[tuple[str, set[str]]]:
    # Some groups make their options when they are asked for them.
    params = command.get_params(command.make_context("", [], resilient_parsing=True))
    yield words, {name for each in params for name in (*each.opts, *each.secondary_opts)}
    for name, part in getattr(command, "commands", {}).items():
        yield from _options(f"{words} {name}".strip(), part)


def wrong_options(text: str, options: Mapping[str, set[str]]) -> set[str]:
    """Returns the options that do not exist, each with its command if it was written with one."""
    found = set()
    for written in COMMAND.findall(text):
        line = re.split(r"[;&|#]", written.replace("\\\n", " "))[0]
        try:
            words = shlex.split(line)
        except ValueError:  # a sentence
            words = line.split()
        command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in options), "")
        for word in words:
            name = word.partition("=")[0]
            if OPTION.fullmatch(name) and name not in options[command] | {"--help", "--version"}:
                found.add(f"headrace {command} {name}")
    every = set().union(*options.values(), OTHERS, {"--help", "--version"})
    return found | (set(ALONE.findall(text)) - every)


def test_an_option_that_does_not_exist_is_found(options: Mapping[str, set[str]]) -> None:
    text = "`headrace topic list --jsn`, or `--nowhere`; `headrace topic list --json` does.\n"
    assert wrong_options(text, options) == {"headrace topic list --jsn", "--nowhere"}


def test_options_in_documents_exist(document: Any, options: Mapping[str, set[str]]) -> None:
    if document.name == "CHANGELOG.md":
        return  # it names what is no more
    wrong = wrong_options(document.text, options)
    if document.name.startswith("docs/engineering/"):
        # Options alone are of benchmarks there.
        wrong = {each for each in wrong if not each.startswith("--")}
    assert wrong == set()
