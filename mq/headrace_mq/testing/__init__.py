"""
What users test their own code with: a broker in the test's process, clocks, and simulated worlds.

Sits between: a user's tests and the queue. No part of a running application.
"""
