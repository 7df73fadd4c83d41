"""
Transactional messages: a journal, decisions, checks, and their delivery.

Used by the request handlers; uses the store. Carries out each decision once.
"""
