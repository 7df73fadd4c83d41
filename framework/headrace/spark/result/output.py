"""
What becomes of the records that the last fold of a job yields, in the process that folds.

    copied into PostgreSQL │ written into files on this machine │ made into pieces │ passed on

Used by `job`, which chooses one of them. It travels with each job, so it imports what copies only
where something is copied: workers would load SQLAlchemy for nothing. It must not know a session.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext

from headrace.spark.executor.fold import RECORD_SCHEMA, Batches
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.result.parts import PIECE_SCHEMA, in_files, in_pieces

if TYPE_CHECKING:
    from headrace.spark.result.copy import Copying

__all__ = ["Ending"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What becomes of the records that the last fold of a job yields.

    Attributes:
        plan: of the job.
        copying: where tasks copy them, if they do.
        folder: in which tasks write them, if they do.
        pieces: whether they are made into pieces.
    """

    plan: FoldPlan
    copying: "Copying | None" = None
    folder: str | None = None
    pieces: bool = False

    @property
    def schema(self) -> str:
        """What `run` yields."""
        return PIECE_SCHEMA if self.pieces else RECORD_SCHEMA

    def run(self, batches: Batches) -> Batches:
        """Passes on what a task yields; runs on executors."""
        if self.folder is not None:
            return in_files(self.folder, batches)
        if self.copying is None and not self.pieces:
            return batches
        context = TaskContext.get()
        assert context is not None, "runs in a task"
        # The same for each attempt: which keys are in a partition depends on nothing but the keys.
        task = context.partitionId()
        if self.copying is None:
            return in_pieces(task, batches)
        from headrace.spark.result.copy import copy_out

        places = self.copying.places
        return copy_out(self.copying, self.plan, places[task] if places else task, batches)
