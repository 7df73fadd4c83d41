"""
What a Python that Spark starts runs first in the tests; `SPARK_PYTHON` of `tests/spark_classes.py` has it do so.

Spark puts PySpark's modules in front of the path as an archive of sources, which each process would
compile again: two thirds of a second. The same modules are installed, and Python keeps them compiled.

A worker looks for garbage among all objects after each task, which took it longer than most tasks of a
test. What a look leaves is kept from the next one.
"""

import gc
import sys
from typing import Any


def _installed(path: str) -> bool:
    """Whether an archive of PySpark lies in its package, and packages beside that are found anyway."""
    packages, archives, _ = path.partition("/pyspark/python/lib/")
    return archives != "" and packages in sys.path


def _keep(phase: str, look: dict[str, Any]) -> None:
    if phase == "stop" and look["generation"] == 2:
        gc.freeze()


sys.path[:] = [path for path in sys.path if not _installed(path)]
if "pyspark.daemon" in sys.orig_argv:
    gc.callbacks.append(_keep)
