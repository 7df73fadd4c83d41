"""
Writes the tables of settings in `operations.md` from the settings themselves.

Run it after a change of a setting, from the project's folder: `python docs/limits.py`. A test fails
until that is done. Sits between: the settings classes, whose comments are the reasons, and a reader.
"""

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Final

__all__ = ["PAGE", "tables", "with_tables"]

PAGE: Final = Path(__file__).parent / "operations.md"
SETTINGS: Final = [
    ("headrace.settings", "Settings", "an application"),
    ("headrace_mq.settings", "BrokerSettings", "a broker"),
    ("headrace_mq.budgets", "BudgetSettings", "what a broker's clients may take up of it"),
    ("headrace_mq.settings", "StoreSettings", "a broker's files"),
    ("headrace_mq.settings", "ArchiveSettings", "a broker's archive"),
    ("headrace_mq.connections", "ConnectionSettings", "the connection of a producer or consumer"),
    ("headrace_mq.settings", "ProducerSettings", "a producer"),
    ("headrace_mq.settings", "TransactionSettings", "a transactional producer"),
    ("headrace_mq.settings", "ConsumerSettings", "a consumer"),
    ("headrace_mq.settings", "RetrySettings", "a consumer's retries"),
    ("headrace_mq.admin.pace", "ResendSettings", "dead letters that are sent again"),
    ("headrace_mq.settings", "SuperviseSettings", "a broker's supervisor"),
]
BEGIN, END = "<!-- settings: begin -->\n", "<!-- settings: end -->\n"


def tables() -> str:
    """Returns a Markdown table for each settings class."""
    return "\n".join(_table(*names) for names in SETTINGS)


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
        f"### `{class_name}`: {whose}",
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
        if field not in defaults or not isinstance(value, str | int | bool | None):
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
