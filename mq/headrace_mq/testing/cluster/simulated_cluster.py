"""
A group of brokers on machines that fail in every way, with the rules of `headrace_mq.cluster` and nothing else real.

Frames are lost, late, doubled, or cut off in one direction. A machine loses its power with any part of what was not synced, or
its whole disk; it stands still, and its clock jumps. The record is away, or does not answer although it was changed. After every
step the promises are checked; in the end all is well again, and the group must come back.

Used by `tests/simulation/test_cluster.py`; `python -m headrace_mq.testing.cluster.many_seeds` runs more. The same seed gives
the same run.
"""

import random
from collections import Counter

from headrace_mq.cluster.election import SPREAD_MS_MAX, Patience
from headrace_mq.cluster.frames import DurableEnd, Follow, Frame, HandOver, Parted, Send, StaleEpoch
from headrace_mq.cluster.leadership import Leadership
from headrace_mq.cluster.member import ClusterMember, Cut, Turn
from headrace_mq.cluster.record import GroupRecord, Identity, Proposal
from headrace_mq.testing.cluster.machines import (
    LOGS,
    Entry,
    Letter,
    Request,
    SimulatedLog,
    SimulatedNode,
)
from headrace_mq.testing.cluster.promises import (
    check_change,
    check_copies,
    check_epochs,
    check_leader,
    check_readable,
    require,
)

__all__ = ["SimulatedCluster", "run"]

STEPS = 1_000
# Rounds of a healed group until all is equal: an election, a cut per epoch, the entries.
CALM_ROUNDS_MAX = 60


class SimulatedCluster:
    """One run.

    Args:
        seed: decides everything.
        member_type: the rules; tests plant defects.
        keeps_store_id: an empty disk comes back under the old id: a planted defect.
        resigns: leaders resign now and then, as if they heard neither the record nor a replica.
    """

    documents: tuple[str, ...] = ()  # the logs that all in sync have in any case

    def __init__(
        self,
        seed: int,
        member_type: type[ClusterMember] = ClusterMember,
        *,
        keeps_store_id: bool = False,
        resigns: bool = False,
    ) -> None:
        self._keeps_store_id, self._resigns = keeps_store_id, resigns
        chosen = self.chosen = random.Random(seed)  # noqa: S311 - repeatable on purpose
        self._member_type = member_type
        self.nodes = {name: SimulatedNode(name) for name in "abc"[: chosen.choice((2, 3, 3, 3))]}
        self.record = GroupRecord(1, 0, "", frozenset(node.me for node in self.nodes.values()))
        self.acked: dict[str, list[Entry]] = {log: [] for log in LOGS}
        self.letters: list[Letter] = []
        self.requests: list[Request] = []
        self.stats: Counter[str] = Counter()
        self.leaders: dict[int, str] = {0: ""}
        self.now_ms = 0
        self.cut_off: set[tuple[str, str]] = set()
        self.record_is_away = False
        self._message = 0
        self._wiped: set[Identity] = set()
        self._unanswered: list[tuple[str, int]] = []
        # A run has its own weather.
        self.loss = chosen.choice((0, 0.02, 0.12))
        self.disorder = chosen.choice((3, 6, 100))
        self.crashes = chosen.choice((0.02, 0.1, 0.4))
        self.eager = chosen.choice((0.05, 0.3, 1))
        self.proposals = chosen.choice((0.1, 0.6))
        self.min_in_sync = chosen.choice((1, 2))
        for node in self.nodes.values():
            self.start(node)

    # Faults, and what machines do by themselves.

    def start(self, node: SimulatedNode) -> None:
        """Starts a broker on what its disk holds."""
        for log in node.logs.values():
            log.start()
        node.member = self._member_type(
            node.me,
            node.logs,
            seen=node.seen,
            min_in_sync=self.min_in_sync,
            documents=self.documents,
        )
        node.starts += 1
        node.stands_still = False
        node.hands_over_to = None
        node.patience = Patience(self._time(node), self.chosen.randint(0, SPREAD_MS_MAX))

    def crash(self, node: SimulatedNode) -> None:
        """Cuts a machine's power: any part of what was not synced stays."""
        self.stats["crashes"] += 1
        node.member = None
        for log in node.logs.values():
            log.cut(self.chosen.randint(min(log.durable, log.end), log.end))
        if not self._wiped and self.record.in_sync - {node.me} and self.chosen.random() < 0.15:
            self.wipe(node)

    def wipe(self, node: SimulatedNode) -> None:
        """Gives a machine an empty disk."""
        self.stats["wiped"] += 1
        self._wiped.add(node.me)
        node.wipe()
        if not self._keeps_store_id:
            node.store += 1

    def step(self) -> None:
        """Lets one thing happen."""
        self.now_ms += self.chosen.randint(0, 60)
        draw = self.chosen.random()
        node = self.chosen.choice(list(self.nodes.values()))
        if draw < 0.38:
            self._deliver_any()
        elif draw < 0.44:
            self._answer_any()
        elif draw < 0.47:
            if node.member is None:
                self.start(node)
            elif self.chosen.random() < self.crashes:
                self.crash(node)
        elif draw < 0.49:
            self._weather(node)
        elif node.member is not None and not node.stands_still:
            self._act(node, node.member)

    def _weather(self, node: SimulatedNode) -> None:
        fault = self.chosen.randrange(7 if self._resigns else 6)
        if fault == 0:
            node.stands_still = not node.stands_still
        elif fault == 1:
            node.ahead_ms += self.chosen.choice((-3_600_000, 3_600_000))
        elif fault == 2:
            self.record_is_away = not self.record_is_away
        elif fault in {3, 6} and node.member is not None and node.member.leadership is not None:
            others = sorted(node.member.leadership.confirmed - {node.me})
            node.hands_over_to = self.chosen.choice(others) if others and fault == 3 else None
            if fault == 6:
                self.stats["resigned"] += 1
                node.member.resign()
        elif fault == 4:
            one, other = self.chosen.sample(sorted(self.nodes), 2)
            self.cut_off ^= {(one, other)}
        else:
            self.cut_off.clear()
            self.record_is_away = False

    def _act(self, node: SimulatedNode, member: ClusterMember) -> None:
        draw = self.chosen.random()
        if draw < 0.16:
            self.read_record(node, member)
        elif member.leadership is not None:
            self._act_as_leader(node, member, draw)
        elif draw < 0.5:
            self.ask(node, member, self.chosen.choice(LOGS))
        elif draw < 0.7:
            self.report(node, member)
        elif draw < 0.85:
            self.sync(node)
        elif member.seen is not None and (
            node.patience.is_over(self._time(node)) or self.chosen.random() < self.eager
        ):
            self.send_proposal(node, member.stand())

    def _act_as_leader(self, node: SimulatedNode, member: ClusterMember, draw: float) -> None:
        leadership = member.leadership
        assert leadership is not None
        if draw < 0.45:
            self.append(node, member)
        elif draw < 0.75:
            self.sync(node)
            member.on_synced()
            self.acknowledge(node, member)
        elif node.hands_over_to is not None:
            frame = member.hand_over(node.hands_over_to)
            if frame is not None:
                self.stats["handed over"] += 1
                self.send(node.name, node.hands_over_to.name, frame)
            if self.chosen.random() < 0.1:
                node.hands_over_to = None
        elif leadership.pending is not None:
            # No answer came: the same request again, or only a look.
            if self.chosen.random() < 0.5:
                self.send_proposal(node, leadership.pending)
            else:
                self.read_record(node, member)
        elif (due := member.settle()) is not None:
            self.send_proposal(node, due)
        elif self.chosen.random() < self.proposals:
            entrants = leadership.entrants()
            others = sorted(leadership.confirmed - {node.me})
            if entrants:
                self.send_proposal(node, member.grow(self.chosen.choice(entrants)))
            elif others and self.chosen.random() < 0.4:
                self.send_proposal(node, member.shrink(self.chosen.choice(others)))
            self.acknowledge(node, member)

    # What a broker does.

    def append(self, node: SimulatedNode, member: ClusterMember) -> None:
        """A client sends a message to the leader: a new one, or one that was never answered."""
        leadership = member.leadership
        assert leadership is not None
        if not leadership.serves or node.hands_over_to is not None:
            return
        if self._unanswered and self.chosen.random() < 0.4:
            log, number = self.chosen.choice(self._unanswered)
        else:
            self._message += 1
            log, number = self.chosen.choice(LOGS), self._message
            self._unanswered.append((log, number))
        held = node.logs[log]
        # A repeat that the log has is no new message: it waits for the first one.
        if all(known != number for _, known in held.entries):
            held.entries.append((leadership.epoch, number))

    def sync(self, node: SimulatedNode) -> None:
        """Makes what was written durable."""
        for log in node.logs.values():
            log.durable = log.end

    def ask(self, node: SimulatedNode, member: ClusterMember, log: str) -> None:
        """A replica asks the leader of the record that it saw last."""
        if member.seen is not None and member.seen.leader not in {"", node.name}:
            self.send(node.name, member.seen.leader, member.follow(log))

    def report(self, node: SimulatedNode, member: ClusterMember) -> None:
        """A replica says what is on its disk."""
        if member.seen is not None and member.seen.leader not in {"", node.name}:
            for frame in member.report():
                self.send(node.name, member.seen.leader, frame)

    def acknowledge(self, node: SimulatedNode, member: ClusterMember) -> None:
        """Takes what the leader commits as promised to clients, and checks it."""
        if member.leadership is not None:
            for name, log in node.logs.items():
                self._acknowledge_log(member.leadership, name, log)

    def _acknowledge_log(self, leadership: Leadership, name: str, log: SimulatedLog) -> None:
        acked = self.acked[name]
        for position in range(leadership.committed(name)):
            entry = log.entries[position]
            if position < len(acked):
                require(acked[position] == entry, f"two histories at {name} {position}")
                continue
            known = {number for _, number in acked}
            require(entry[1] not in known, f"message {entry[1]} came twice")
            self._check_copies(leadership.epoch, name, position, entry)
            acked.append(entry)
            if (name, entry[1]) in self._unanswered:
                self._unanswered.remove((name, entry[1]))

    def _check_copies(self, epoch: int, log: str, position: int, entry: Entry) -> None:
        if self.record.epoch == epoch:
            members = sorted(self.record.in_sync - self._wiped)
            check_copies([self.nodes[one.name] for one in members], log, position, entry)

    # The record.

    def read_record(self, node: SimulatedNode, member: ClusterMember) -> None:
        """A broker reads the record, unless it is away."""
        if not self.record_is_away:
            self._take_record(node, member, None)

    def _take_record(
        self, node: SimulatedNode, member: ClusterMember, refused: Proposal | None
    ) -> None:
        found = self.record
        turn = member.on_record(found) if refused is None else member.on_refused(refused, found)
        require(turn is not Turn.WENT_BACK, "the record went back")
        node.seen = member.seen
        if turn is Turn.LEAD:
            self._lead(node, member)
        elif turn is Turn.FOLLOW:
            node.patience.heard(self._time(node))
        self.acknowledge(node, member)

    def _lead(self, node: SimulatedNode, member: ClusterMember) -> None:
        self.stats["led"] += 1
        require(node.me in self.record.in_sync, f"{node.name} leads outside the set")
        self.sync(node)
        for name, log in node.logs.items():
            self._check_leader(node, name)
            log.history.begin(member.epoch, log.end)
        leadership = member.lead()
        before = self.leaders.setdefault(leadership.epoch, node.name)
        require(before == node.name, f"two leaders of epoch {leadership.epoch}")
        node.hands_over_to = None

    def _check_leader(self, node: SimulatedNode, name: str) -> None:
        check_leader(node, name, self.acked[name])

    def send_proposal(self, node: SimulatedNode, proposal: Proposal | None) -> None:
        """Sends a proposal on its way to the record."""
        if proposal is not None:
            self.requests.append(Request(node.name, node.starts, proposal))

    def _answer_any(self) -> None:
        if self.requests and not self.record_is_away:
            self._answer(self.requests.pop(self.chosen.randrange(len(self.requests))))

    def _answer(self, request: Request) -> None:
        name, start, proposal, made = request
        if self.chosen.random() < self.loss:
            return
        if made is None:
            made = self.record.version == proposal.seen
            if made:
                check_change(self.record, proposal)
                self._change(proposal)
                self.stats["changes"] += 1
            self.requests.append(Request(name, start, proposal, made))
            return
        node = self.nodes[name]
        if node.member is not None and node.starts == start and not node.stands_still:
            self._take_record(node, node.member, None if made else proposal)

    def _change(self, proposal: Proposal) -> None:
        self.record = self.record.changed(proposal)

    # The network.

    def send(self, sender: str, to: str, frame: Frame, entries: tuple[Entry, ...] = ()) -> None:
        """Sends a frame on its way."""
        if (sender, to) not in self.cut_off:
            self.letters.append(Letter(sender, to, frame, entries))

    def _deliver_any(self) -> None:
        if not self.letters:
            return
        letter = self.letters.pop(self.chosen.randrange(min(len(self.letters), self.disorder)))
        if self.chosen.random() < self.loss:
            return
        if self.nodes[letter.to].stands_still:
            # It waits in the socket.
            self.letters.append(letter)
            return
        if self.chosen.random() < 0.03:
            self.letters.append(letter)
        self.deliver(letter)

    def deliver(self, letter: Letter) -> None:
        """A frame arrives."""
        node = self.nodes[letter.to]
        member, frame = node.member, letter.frame
        if member is None:
            return
        if isinstance(frame, Follow):
            self._deliver_follow(node, member, letter.sender, frame)
        elif isinstance(frame, DurableEnd):
            member.on_durable(frame)
            self.acknowledge(node, member)
        elif isinstance(frame, StaleEpoch):
            member.on_stale(frame)
        elif isinstance(frame, HandOver):
            self.send_proposal(node, member.on_hand_over(frame))
        else:
            self._deliver_answer(node, member, letter)
        self._check_readable(node)

    def _check_readable(self, node: SimulatedNode) -> None:
        check_readable(node, self.acked)

    def _deliver_follow(
        self, node: SimulatedNode, member: ClusterMember, sender: str, frame: Follow
    ) -> None:
        answer = member.on_follow(frame)
        if isinstance(answer, Send):
            size = self.chosen.randint(1, 3)
            entries = node.logs[frame.log].entries[frame.end : frame.end + size]
            self.send(node.name, sender, answer, tuple(entries))
        elif answer is not None:
            self.send(node.name, sender, answer)

    def _deliver_answer(self, node: SimulatedNode, member: ClusterMember, letter: Letter) -> None:
        frame = letter.frame
        if isinstance(frame, Send) and member.on_send(frame, len(letter.entries)):
            node.patience.heard(self._time(node))
            node.logs[frame.log].append(letter.entries)
        elif isinstance(frame, Parted):
            cut = member.on_parted(frame)
            if cut is not None:
                self._cut(node, cut)

    def _cut(self, node: SimulatedNode, cut: Cut) -> None:
        self.stats["cuts"] += 1
        name, position = cut[:2]
        log, acked = node.logs[name], self.acked[name]
        kept = all(
            at >= len(acked) or acked[at] != log.entries[at] for at in range(position, log.end)
        )
        # No promise needs what a broker outside the set has: it may follow a leader that was replaced.
        kept = kept or node.me not in self.record.in_sync
        require(kept, f"{node.name} cuts {name} at {position}, below what is acknowledged")
        log.cut(position)
        if self.chosen.random() < 0.1:
            # The power goes before the file of epochs is cut, too.
            self.crash(node)
        else:
            log.history.cut(position)

    def check_logs(self) -> None:
        """Checks the epochs of every log."""
        for node in self.nodes.values():
            check_epochs(node)

    def _time(self, node: SimulatedNode) -> int:
        return self.now_ms + node.ahead_ms

    # The end: all faults are over.

    def calm_down(self) -> None:
        """Ends all faults; the group must elect a leader, become equal, and answer all clients."""
        self.cut_off.clear()
        self.record_is_away = False
        self.loss = 0
        for node in self.nodes.values():
            node.stands_still = False
            node.hands_over_to = None
            if node.member is None:
                self.start(node)
        for _ in range(CALM_ROUNDS_MAX):
            self._round()
            if self._is_whole():
                return
        alive = {node.me for node in self.nodes.values()} & self.record.in_sync
        require(not alive, f"the group does not come back: {self.record}")

    def _round(self) -> None:
        while self.requests:
            self._answer(self.requests.pop(0))
        for node in self.nodes.values():
            member = node.member
            if member is None:
                self.start(node)
                continue
            self.read_record(node, member)
            self.sync(node)
            member.on_synced()
            leads = member.leadership
            if leads is not None:
                self.acknowledge(node, member)
                if leads.pending is not None:
                    self.send_proposal(node, leads.pending)
                elif due := member.settle():
                    self.send_proposal(node, due)
                elif entrants := leads.entrants():
                    self.send_proposal(node, member.grow(entrants[0]))
                continue
            for log in LOGS:
                self.ask(node, member, log)
            self.report(node, member)
            leader = self.nodes.get(self.record.leader)
            if leader is None or leader.member is None or leader.member.leadership is None:
                self.send_proposal(node, member.stand())
        while self.letters:
            self.deliver(self.letters.pop(0))
        self.check_logs()

    def _is_whole(self) -> bool:
        logs = [[node.logs[log].entries for log in LOGS] for node in self.nodes.values()]
        return (
            self.record.in_sync == frozenset(node.me for node in self.nodes.values())
            and all(found == logs[0] for found in logs)
            and [self.acked[log] for log in LOGS] == logs[0]
            and self.record.epoch > 0
        )


def run(seed: int, kind: type[ClusterMember] = ClusterMember, **options: bool) -> Counter[str]:
    """Runs one seed, with the options of `SimulatedCluster`; returns what happened. Raises BrokenPromise."""
    cluster = SimulatedCluster(seed, kind, **options)
    for number in range(STEPS):
        cluster.step()
        if not number % 20:
            cluster.check_logs()
    cluster.calm_down()
    cluster.stats["acknowledged"] = sum(map(len, cluster.acked.values()))
    return cluster.stats + Counter(epochs=cluster.record.epoch, runs=1)
