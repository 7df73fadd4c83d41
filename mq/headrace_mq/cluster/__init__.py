"""
The rules by which several brokers keep one log: who leads, who must have a message, what is cut.

Reads top to bottom: `member` (one broker of a group) -> `leadership` (what the leader of an epoch may commit, and who must have
it) -> `election` (who may lead, and when) -> `frames` (what members say to each other) -> `operations` (what an operator may
do) -> `record` (the one thing that needs consensus: epoch, leader, in-sync set; `records` keeps it). `frames`, `leadership`,
`election`, `operations` and `member` are pure.

Used by the broker's owner and by the simulation in `tests/simulation/cluster`; uses `store.replication` for the epochs of a
log. No lease and no clock is part of its safety: a leader acknowledges with every member of the in-sync set, and a
member that becomes a leader answers no earlier epoch any more. Time only decides when a member tries.
"""
