"""
A rebuild that goes on with the shares that a killed one has copied.

    first run   plan ─▶ written next to the tables ─▶ tasks copy shares, and note each ─▶ killed
    second run  its shadow, taken over ─▶ plan: as it would be here? ─▶ only the other shares are folded

The plan has the ends of the first run: what came since is caught up with, as after any rebuild. It
is for jobs whose tasks fold what they read, without a shuffle: a share is then what one task has read.
Used by `rebuild`, which has the session; asks the broker which topic it has. It must not know what events mean.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

import msgspec
import pyarrow as pa

from headrace._runtime.log import get_logger
from headrace.errors import ProjectionError
from headrace.spark.driver.load import Loading
from headrace.spark.executor.plan import FoldPlan
from headrace.spark.job import Folded, read_result
from headrace.spark.result.copy import Copying, told_in
from headrace.spark.result.parts import FETCHED, FETCHED_ARROW_SCHEMA, Spool
from headrace.transports.topic_reader import topic_identity
from headrace_mq.errors import MessageQueueError
from headrace_mq.message import QueueRef
from headrace_mq.protocol.bodies import QueueRange
from headrace_mq.spark.offsets import QueueSlice

__all__ = ["SharePlan", "fold_left", "left_of", "resumed", "resumed_plan", "written_plan"]

_log = get_logger(__name__)

# Sealed by two event stores, it differs.
_SAMPLE = b'{"v":1}'


class SharePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the shares of a rebuild are, as it is written next to what tasks copy.

    Attributes:
        topic: its name.
        identity: the UUID that it got when it was made.
        projection: version and columns, as its fingerprint tells them.
        seal: the digest of a sample that the event store has sealed; empty without one.
        slices: queue, and offsets from the first to before the last.
        groups: of each share, places in that list.
    """

    topic: str
    identity: str
    projection: str
    seal: str
    slices: tuple[tuple[int, int, int], ...]
    groups: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, plan: FoldPlan, identity: str, fingerprint: str) -> "SharePlan":
        """Returns what a plan's shares are.

        Args:
            plan: divided among tasks, which read the topic and do not bring streams together.
            identity: of the topic.
            fingerprint: of the projection.
        """
        return cls(
            topic=plan.slices[0].queue.topic,
            identity=identity,
            projection=fingerprint,
            seal="" if plan.seal is None else sha256(plan.seal.put_on(_SAMPLE)).hexdigest(),
            slices=tuple((each.queue.queue_id, each.start, each.end) for each in plan.slices),
            groups=plan.tasks,
        )

    @classmethod
    def from_text(cls, text: str) -> "SharePlan | None":
        """Returns a plan that was written; None: another version of Headrace has written it."""
        try:
            return msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError):
            return None

    def to_text(self) -> str:
        """Returns the plan as text, the same for the same plan."""
        return msgspec.json.encode(self).decode()


def resumed(
    plan: FoldPlan,
    held: Sequence[QueueRange],
    identity: str,
    fingerprint: str,
    *,
    before: str,
) -> tuple[FoldPlan, str]:
    """Returns the plan of a killed rebuild, if its shares are of use here; or this one, and why not; pure.

    Args:
        plan: of this rebuild, not divided yet.
        held: what the broker holds.
        identity: of the topic.
        fingerprint: of the projection.
        before: the killed one's, as it was written.
    """
    found = SharePlan.from_text(before)
    if found is None:
        return plan, "another version of Headrace has written what was to be done"
    if not identity or found.identity != identity:
        return plan, "the event topic is another one"
    own = SharePlan.of(plan, identity, fingerprint)
    if found.projection != own.projection:
        return plan, "the projection has another version or other fields"
    if found.seal != own.seal:
        return plan, "it had another event store, or one of the two has none"
    ends = {one.queue_id: one.end for one in held}
    if any(ends.get(queue, 0) < end for queue, _, end in found.slices):
        return plan, "the event topic ends before what was folded"
    slices = (
        QueueSlice(queue=QueueRef(found.topic, queue), start=start, end=end)
        for queue, start, end in found.slices
    )
    return replace(plan, slices=tuple(slices), groups=found.groups), ""


def left_of(plan: FoldPlan, noted: Collection[int]) -> tuple[FoldPlan, tuple[int, ...]]:
    """Returns what is left of a plan without the shares that are noted, and which share each task has; pure."""
    left = [(share, group) for share, group in enumerate(plan.tasks) if share not in noted]
    slices: list[QueueSlice] = []
    groups: list[tuple[int, ...]] = []
    for _, group in left:
        groups.append(tuple(range(len(slices), len(slices) + len(group))))
        slices += [plan.slices[place] for place in group]
    shares = tuple(share for share, _ in left)
    return replace(plan, slices=tuple(slices), groups=tuple(groups)), shares


async def resumed_plan(
    plan: FoldPlan, loading: Loading, held: Callable[[], Awaitable[Sequence[QueueRange]]]
) -> FoldPlan:
    """Returns what to read: as a killed rebuild has planned it, if shares of it can be used.

    Args:
        plan: of this rebuild.
        loading: into its shadow.
        held: asks what the broker holds.

    Raises:
        ProjectionError: the broker is away.
    """
    before = await loading.plan_before()
    if before is None or not plan.slices:
        return plan
    projection = loading.shadow.projection
    identity = await _identity_of(plan)
    plan, why = resumed(plan, await held(), identity, projection.fingerprint, before=before)
    if why:
        _log.warning(
            "rows that a killed rebuild has copied are folded again",
            projection=projection.name,
            reason=why,
        )
    return plan


async def written_plan(
    plan: FoldPlan, loading: Loading, divide: Callable[[FoldPlan], Awaitable[FoldPlan]]
) -> tuple[FoldPlan, str | None]:
    """Returns a plan from zero divided among tasks, and as it is written down; None: it is not.

    Args:
        plan: folds in Python.
        loading: into the shadow.
        divide: among tasks.

    Raises:
        ProjectionError: the broker is away.
    """
    projection = loading.shadow.projection
    of_topic = not (plan.shares or plan.archive) and bool(plan.slices)
    if not (loading.copies and projection.keyed_by_aggregate and of_topic):
        return plan, None
    divided = await divide(plan)
    identity = "" if divided.together else await _identity_of(plan)
    if not identity:
        return divided, None
    return divided, SharePlan.of(divided, identity, projection.fingerprint).to_text()


async def fold_left(
    fold: Callable[..., Awaitable[Folded]],
    plan: FoldPlan,
    noted: Mapping[int, bytes],
    into: Copying | Spool,
) -> Folded:
    """Folds the shares that are not noted yet; returns what was counted of all of them.

    Args:
        fold: runs the job of a plan.
        plan: divided among tasks.
        noted: shares that are copied, and what their tasks told.
        into: where the job's tasks copy.

    Raises:
        ProjectionError: a fold failed; or, of all shares, versions are missing.
    """
    if not noted:
        return await fold(plan, into=into)
    assert isinstance(into, Copying), "shares are noted where tasks copy"
    left, places = left_of(plan, noted)
    told = (batch.select(list(FETCHED)) for note in noted.values() for batch in told_in(note))
    before = read_result(plan, pa.Table.from_batches(told, schema=FETCHED_ARROW_SCHEMA))
    _log.info(
        "rows that a killed rebuild has copied are kept",
        projection=plan.projection,
        tasks=len(noted),
        left=len(places),
    )
    folded = await fold(left, into=replace(into, places=places))
    counts = folded.counts + before.counts
    counts["reused"] = len(noted)
    return replace(
        folded,
        counts=counts,
        left_out=(*before.left_out, *folded.left_out),
        # A task has read queues whole.
        queues=before.queues | folded.queues,
    )


async def _identity_of(plan: FoldPlan) -> str:
    """Returns the UUID that the topic got when it was made; empty: the broker does not know."""
    broker, topic = plan.broker, plan.slices[0].queue.topic
    try:
        return await topic_identity(broker, topic)
    except MessageQueueError as error:
        raise ProjectionError(f"projection {plan.projection}: {error}") from error
