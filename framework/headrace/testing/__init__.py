"""
What users test their own code with: scenarios for aggregates, fakes, conformance suites.

Used by a user's tests; uses the framework. No part of a running application.
"""
