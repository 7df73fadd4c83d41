"""
Where settings come from: a file, the environment, `--set` or an option, the weakest first.

    store.flush = "interval" in broker.toml, HEADRACE_STORE__FLUSH=always   ─▶   HEADRACE_STORE__FLUSH

Used by `headrace broker`, which tells it to those who ask the broker, and by `headrace config show`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.cli.settings import gather

__all__ = ["DEFAULT", "Layers", "layers_of", "source_in"]

_VARIABLE: Final = "variable"
DEFAULT: Final = "default"

# What each source gave, by part and name.
Layers = dict[str, dict[str, dict[str, Any]]]


def layers_of(
    kinds: Mapping[str, Any],
    *,
    file: Path | None,
    environment: Mapping[str, str],
    pairs: Iterable[str] | None,
) -> Layers:
    """Returns what a file, the environment and `--set` gave, the weakest first; raises as `gather`.

    Args:
        kinds: the settings of each part.
        file: in TOML, or None.
        environment: of the process.
        pairs: NAME=VALUE or PART.NAME=VALUE.
    """
    return {
        str(file): gather(kinds, file=file, environment={}, pairs=()),
        _VARIABLE: gather(kinds, file=None, environment=environment, pairs=()),
        "--set": gather(kinds, file=None, environment={}, pairs=pairs),
    }


def source_in(layers: Layers, part: str, name: str) -> tuple[str, Any]:
    """Returns the strongest source of a setting, and the value that it gave; `default` and None where none did."""
    for source in reversed(layers):
        if name in layers[source][part]:
            value = layers[source][part][name]
            return (f"HEADRACE_{part}__{name}".upper() if source == _VARIABLE else source), value
    return DEFAULT, None
