"""
What an executor needs to know to fold its share of a topic: names and numbers, nothing alive.

Used by the driver, which makes a plan, and by `fold`, which carries it out in another process,
perhaps on another machine. An application travels as the path to import it by.
"""

import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headrace.app import App, load_app
from headrace.events.seals import Seal
from headrace.projections.definition.projection import Projection
from headrace.projections.definition.row_subset import narrowed
from headrace.spark.archive import ArchiveFile
from headrace.spark.executor.meter import ProgressPlace
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["FoldPlan", "load_application", "module_folder", "projection_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldPlan:
    """One rebuild's work, as it travels to the executors.

    Attributes:
        app: where to import the application from, such as `samples.bank:app`.
        folder: the folder that holds its top-level module here; tried where it is not installed.
        projection: the projection's name.
        broker: its address, as executors reach it; not shown, that of a Kafka cluster may have secrets in it.
        event_store: URL of the store that fills gaps; None: a gap fails the rebuild.
        seal: what the messages of that store carry; None: all that stands in the topic is believed.
        slices: what to read.
        groups: for each task that reads, places in that list; empty: each slice has a task of its own.
        together: streams are brought together by aggregate before they are gated; for queues that
            several tasks read, and aggregates that stand in several queues.
        shares: the slices are of the event store, so many of all its aggregates; 0: of the topic.
        archive: files that hold a part of it; the rest comes from the broker.
        only: keys of the rows that are wanted; None: all.
        progress: where tasks tell how much they have read; None: nowhere.
    """

    app: str
    folder: str
    projection: str
    broker: str = field(repr=False)
    event_store: str | None
    slices: tuple[QueueSlice, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    together: bool = False
    shares: int = 0
    archive: tuple[ArchiveFile, ...] = ()
    only: frozenset[str] | None = None
    seal: Seal | None = None
    progress: ProgressPlace | None = None

    @property
    def tasks(self) -> tuple[tuple[int, ...], ...]:
        """For each task that reads, places in the list of slices; an executor is given task numbers."""
        return self.groups or tuple((place,) for place in range(len(self.slices)))


def load_application(path: str, folder: str) -> App:
    """Imports an application by `module:attribute` in an executor.

    Args:
        path: such as `samples.bank:app`.
        folder: where to look for the module if it is not installed here.

    Raises:
        DefinitionError: there is no such module or attribute.
    """
    module = _top_module(path)
    if module not in sys.modules and find_spec(module) is None:
        # Only ever reached in a Spark worker, whose search path is this job's to extend.
        sys.path.append(folder)
    return load_app(path)


def module_folder(path: str) -> str:
    """Returns the folder from which this process imported an application's top-level module."""
    module = sys.modules[_top_module(path)]
    places = list(getattr(module, "__path__", [])) or [getattr(module, "__file__", None) or "."]
    return str(Path(places[0]).resolve().parent)


def _top_module(path: str) -> str:
    return path.partition(":")[0].partition(".")[0]


def projection_of(application: App, plan: FoldPlan) -> Projection[Any]:
    """Returns the projection that a plan folds: for all of its keys, or for those it names."""
    whole: Projection[Any] = application.projection(plan.projection)
    return whole if plan.only is None else narrowed(whole, plan.only)
