"""
Transactional messages: prepared, committed or rolled back, and checked.

Sits between: an application's own transaction and the broker's.
"""
