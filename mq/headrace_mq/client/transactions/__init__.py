"""
Transactional messages: prepared, committed or rolled back, and checked.

Used by applications, together with a transaction of their own database.
"""
