"""
Strategies that divide a topic's queues among the members of a group.

Every member computes its share by itself, so a strategy is a pure function: the same members,
queues and former owners give everyone the same answer.

Sits between: `client.group.rebalance`, which asks for one topic at a time, and nothing below.
"""
