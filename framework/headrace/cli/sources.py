"""
Where settings come from: a file, the environment, `--set` or an option, the weakest first.

    store.flush = "interval" in broker.toml, HEADRACE_STORE__FLUSH=always   ─▶   HEADRACE_STORE__FLUSH

Used by `headrace broker` and `headrace run`, which tell it to those who ask, and by `headrace config show`.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.cli.settings import SettingsFile, gather

if TYPE_CHECKING:  # the help text must not wait for pydantic
    from pydantic import BaseModel

__all__ = ["DEFAULT", "Layers", "layers_of", "source_in", "told_settings"]

_VARIABLE: Final = "variable"
DEFAULT: Final = "default"

# What each source gave, by part and name.
Layers = dict[str, dict[str, dict[str, Any]]]


def layers_of(
    kinds: Mapping[str, Any],
    *,
    file: Path | SettingsFile | None,
    environment: Mapping[str, str],
    pairs: Iterable[str] | None,
) -> Layers:
    """Returns what a file, the environment and `--set` gave, the weakest first; raises as `gather`.

    Args:
        kinds: the settings of each part.
        file: in TOML, or what was read of it, or None.
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


def told_settings(
    parts: "Mapping[str, BaseModel]", layers: Layers, options: Mapping[str, str]
) -> list[dict[str, str]]:
    """Returns the settings that a process was given, for those who ask it: name, value, default and source, no secret.

    Args:
        parts: the settings by their part; those of the first are named without it.
        layers: of `layers_of`.
        options: the options or variables that gave a setting, by `part.name`; these are the strongest.
    """
    from headrace_mq.effective_settings import text_of

    main = next(iter(parts))
    found = []
    for part, settings in parts.items():
        for name, field in type(settings).model_fields.items():
            value = text_of(getattr(settings, name))
            source = options.get(f"{part}.{name}") or source_in(layers, part, name)[0]
            default = (
                "" if field.is_required() else text_of(field.get_default(call_default_factory=True))
            )
            found.append(
                {
                    "name": name if part == main else f"{part}.{name}",
                    "value": value,
                    # The command has defaults of its own, such as for addresses.
                    "default": value if source == DEFAULT else default,
                    "source": source,
                }
            )
    return found
