"""
Makes `spark.read.format("headrace")` work without `register`: Spark finds this module by its name.

Spark imports each top-level module called `pyspark_…` when a program names its first data source, and takes
what the module calls `DefaultSource`. Used by Spark alone. It must raise nothing where a part of Spark is
missing: all data sources of that program would fail.
"""

from importlib.util import find_spec

__all__: list[str] = []

if all(map(find_spec, ("pyspark", "pyarrow"))):
    from headrace_mq.spark.source import UnregisteredDataSource as DefaultSource

    __all__ += ["DefaultSource"]
