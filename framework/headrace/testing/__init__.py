"""
What users test their own code with: scenarios for aggregates, fakes, conformance suites.

Sits between: a user's tests and the framework. No part of a running application.
"""
