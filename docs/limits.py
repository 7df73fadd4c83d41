"""
Writes the tables of settings and of fixed limits in `limits.md` from the code itself.

Run it after a change of a setting or a limit, from the project's folder: `python docs/limits.py`. A test
fails until that is done. Reads settings classes and constants; their comments are the reasons.
"""

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "tables", "with_tables"]

PAGE: Final = Path(__file__).parent / "limits.md"
SETTINGS: Final = [
    ("headrace.settings", "Settings", "an application"),
    ("headrace.console.settings", "ConsoleSettings", "the web console"),
    ("headrace.alarms.settings", "AlarmSettings", "the watcher of alarms"),
    ("headrace_mq.settings", "BrokerSettings", "a broker"),
    ("headrace_mq.settings", "BudgetSettings", "what a broker's clients may take up of it"),
    ("headrace_mq.settings", "StoreSettings", "a broker's files"),
    ("headrace_mq.settings", "ArchiveSettings", "a broker's archive"),
    ("headrace_mq.settings", "GroupSettings", "a broker's group"),
    ("headrace_mq.name_settings", "NamesSettings", "what a broker tells name servers"),
    ("headrace_mq.name_settings", "NameServerSettings", "a name server"),
    (
        "headrace_mq.client_settings",
        "ConnectionSettings",
        "the connection of a producer or consumer",
    ),
    ("headrace_mq.client_settings", "ProducerSettings", "a producer"),
    ("headrace_mq.client_settings", "TransactionSettings", "a transactional producer"),
    ("headrace_mq.client_settings", "ConsumerSettings", "a consumer"),
    ("headrace_mq.client_settings", "RetrySettings", "a consumer's retries"),
    ("headrace_mq.admin.dead_letters", "ResendSettings", "dead letters that are sent again"),
    ("headrace_mq.settings", "SuperviseSettings", "a broker's supervisor"),
]
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"
# The queue's constants stand in its own `ARCHITECTURE.md`; these packages only serve a terminal or tests.
FIXED: Final = Path(__file__).parents[1] / "framework" / "headrace"
NOT_OF_AN_APPLICATION: Final = ("cli", "testing")
LIMIT: Final = re.compile(r"[A-Z_]*(_MAX|_MIN|_MS|_PAGE|_PAGE_[A-Z]+)")


def tables() -> str:
    """Returns a Markdown table for each settings class, and one of what is fixed."""
    return "\n".join([*(_table(*names) for names in SETTINGS), _fixed()])


def with_tables(page: str) -> str:
    """Returns the page with the tables between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{PAGE.name} lacks the lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{tables()}\n{END}{after}"


def _table(module_name: str, class_name: str, whose: str) -> str:
    module = importlib.import_module(module_name)
    lines = inspect.getsource(module).splitlines()
    (declared,) = (
        node
        for node in ast.parse("\n".join(lines)).body
        if isinstance(node, ast.ClassDef) and node.name == class_name
    )
    described = _described(ast.get_docstring(declared) or "")
    rows = [
        f"## `{class_name}`: {whose}",
        "",
        "| Setting | Default | Reason |",
        "|---|---|---|",
    ]
    for field in declared.body:
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        name = field.target.id
        if name == "model_config":
            continue
        reason = _comment_above(lines, field.lineno) or described.get(name, "")
        rows.append(f"| `{name}` | {_default(module, class_name, name)} | {reason} |")
    return "\n".join([*rows, ""])


def _fixed() -> str:
    rows = [
        "## Fixed limits of an application",
        "",
        "You cannot set these. Names are those in the code, below `headrace`.",
        "",
        "| Limit | Value | Reason |",
        "|---|---|---|",
    ]
    for path in sorted(FIXED.rglob("*.py")):
        parts = path.relative_to(FIXED).with_suffix("").parts
        if parts[0] in NOT_OF_AN_APPLICATION:
            continue
        lines = path.read_text(encoding="utf-8").splitlines()
        for name, value, line in _constants("\n".join(lines)):
            reason = _comment_above(lines, line) or _comment_above(lines, line - 1)
            rows.append(f"| `{'.'.join(parts)}.{name}` | {value:,} | {reason} |")
    return "\n".join([*rows, ""])


def _constants(source: str) -> Iterator[tuple[str, int, int]]:
    """Yields name, value and line of the whole numbers of a module that are limits by their names."""
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                continue
        plain = (ast.Constant, ast.BinOp, ast.operator)
        if LIMIT.fullmatch(name) and all(isinstance(each, plain) for each in ast.walk(value)):
            number = eval(ast.unparse(value), {"__builtins__": {}})  # noqa: S307 - numbers alone
            if isinstance(number, int):
                yield name, number, node.lineno


def _default(module: object, class_name: str, field: str) -> str:
    settings = getattr(module, class_name)
    if hasattr(settings, "model_fields"):
        value = settings.model_fields[field].default
    else:
        # A required field of a struct has no default.
        names = settings.__struct_fields__
        defaults = dict(
            zip(
                names[len(names) - len(settings.__struct_defaults__) :],
                settings.__struct_defaults__,
                strict=True,
            )
        )
        value = defaults.get(field)
        if field not in defaults or not isinstance(value, str | int | float | bool | None):
            return "required"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "none" if value is None else f"`{value}`"


def _comment_above(lines: list[str], line: int) -> str:
    comment: list[str] = []
    at = line - 2
    while at >= 0 and lines[at].strip().startswith("#"):
        comment.insert(0, lines[at].strip().removeprefix("#").strip())
        at -= 1
    if not comment and _related(lines[at], lines[line - 1]):
        return _comment_above(lines, at + 1)
    return " ".join(comment).replace("|", "\\|")


def _related(line: str, next_line: str) -> bool:
    """Whether two settings share a comment, as retry_ms_min and retry_ms_max do."""
    names = [re.match(r"    (\w+): ", one) for one in (line, next_line)]
    if None in names:
        return False
    (first, _, rest), (other_first, _, other_rest) = (
        name[1].partition("_") for name in names if name
    )
    return first.rstrip("s") == other_first.rstrip("s") or bool(rest and rest == other_rest)


def _described(docstring: str) -> dict[str, str]:
    _, _, arguments = docstring.partition("Args:")
    return {name: text.strip() for name, text in re.findall(r"^ +(\w+): (.+)$", arguments, re.M)}


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
