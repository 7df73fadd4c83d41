"""
The SQL of an adapter: one statement per file, next to the adapter.

Used by the adapters; reads the files in their `sql/` folders.
"""

from importlib.resources import files

__all__ = ["load_statement"]


def load_statement(package: str, name: str) -> str:
    """Returns the statement in `sql/NAME.sql` of a package, without its comments.

    Raises:
        FileNotFoundError: there is none of that name.
    """
    content = (files(package) / "sql" / f"{name}.sql").read_text(encoding="utf-8")
    # A comment goes over the wire for nothing, and a colon in it reads like a bind.
    lines = [line for line in content.splitlines() if not line.lstrip().startswith("--")]
    return "\n".join(lines)
