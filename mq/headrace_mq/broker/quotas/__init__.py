"""
Quotas and limits: rates, budgets, and the requests that wait for them.

Sits between: the request handlers and what a request may use up.
"""
