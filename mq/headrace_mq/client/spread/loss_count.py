"""
One count of losses for all broker groups, because each group counts its epochs by itself. PURE.

    g1 serves in epoch 8, and lost messages in epoch 2 ─┐
    g2 serves in epoch 5, and lost messages in epoch 5 ─┴─▶ epoch 2, lossy 2: a loss since the first look

A client that compares the `lossy` of one answer with the `epoch` of an earlier one learns of each loss in any group, as with one
group. The count begins at 1 with each client, so numbers of different clients cannot be compared.

Used by `answers`.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from headrace_mq.protocol.bodies import QueueRangesAnswer

__all__ = ["LossCount"]


class LossCount:
    """What one client has seen of the losses of its broker groups.

    Attributes:
        count: 1, and one more for each loss.
        lossy: the count after the last loss; 0: there was none.
    """

    def __init__(self) -> None:
        self.count, self.lossy = 1, 0
        # By group: the latest epoch that it served in.
        self._epochs: dict[str, int] = {}
        # By group: the epoch of its last loss that was counted, and the count before it.
        self._losses: dict[str, tuple[int, int]] = {}

    def stamped(
        self, answers: Mapping[str, QueueRangesAnswer], merged: QueueRangesAnswer
    ) -> QueueRangesAnswer:
        """Returns what groups said together, with this client's count as its epochs.

        Args:
            answers: by group; one without an epoch is of an older broker, and says nothing of losses.
            merged: what they have together.
        """
        for group, answer in answers.items():
            self._hear(group, answer)
        epoch = min((self._before(group, one.epoch) for group, one in answers.items()), default=0)
        return replace(merged, epoch=epoch, lossy=self.lossy)

    def _hear(self, group: str, answer: QueueRangesAnswer) -> None:
        known = self._epochs.get(group, 0)
        # What was lost before the first look is nothing that this client knew.
        if 0 < known < answer.lossy:
            self._losses[group] = answer.lossy, self.count
            self.count += 1
            self.lossy = self.count
        self._epochs[group] = max(known, answer.epoch)

    def _before(self, group: str, epoch: int) -> int:
        """The count when a group served in an epoch: an answer may be read after a newer one."""
        lossy, before = self._losses.get(group, (0, 0))
        return before if 0 < epoch < lossy else self.count
