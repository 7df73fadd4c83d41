"""
Quotas and limits: rates, budgets, and the requests that wait for them.

Used by the request handlers. It knows what each request consumes.
"""
