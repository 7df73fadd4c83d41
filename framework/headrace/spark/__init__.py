"""
Rebuilding read models with Spark: the live folds, over the whole event topic, on every core.

    rebuild   what a rebuild is asked for       session  a local Spark session, or another one
    driver    opens, plans, loads, reports      job      the Spark job
    executor  reads, gates and folds            rows     rows as bytes
    result    rows on their way into a shadow   progress what was read so far
    several   one reading for several projections

What a rebuild does before and after its job stands in `headrace.rebuild`.

Used by the command line and notebooks, which ask for a rebuild; uses the folds, the event topic's
data source and the tables of read models. It imports nothing of its own here: executors load only
what folds.

    from headrace.spark.rebuild import rebuild
"""

from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from headrace.errors import ExtraMissing

if TYPE_CHECKING:  # loaded when a name is first used
    from headrace.spark.analysis.events import read_events
    from headrace.spark.session import local_session
    from headrace.spark.stream.events import read_event_stream

__all__ = ["local_session", "read_event_stream", "read_events"]

_HOMES = MappingProxyType(
    {
        "local_session": "headrace.spark.session",
        "read_event_stream": "headrace.spark.stream.events",
        "read_events": "headrace.spark.analysis.events",
    }
)

# `mapInArrow` refuses to work without pandas. Only looked for: importing it takes half a second.
if not all(map(find_spec, ("pyspark", "pyarrow", "pandas"))):
    raise ExtraMissing(
        "rebuilding with Spark needs PySpark, PyArrow and pandas: pip install 'headrace[spark]'"
    )


def __getattr__(name: str) -> Any:
    """Loads a name of the face from its home."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
