"""
A test kit for users: a broker or a name server in the test's process, clocks, and simulated worlds.

Used by your tests; no part of a running application.
"""

from headrace_mq.testing.arrivals import caught_up, take
from headrace_mq.testing.clock import ManualClock
from headrace_mq.testing.embedded import broker, memory_disk, name_server
from headrace_mq.testing.simulated_broker import SimulatedBroker
from headrace_mq.testing.simulation import Simulation

__all__ = [
    "ManualClock",
    "SimulatedBroker",
    "Simulation",
    "broker",
    "caught_up",
    "memory_disk",
    "name_server",
    "take",
]
