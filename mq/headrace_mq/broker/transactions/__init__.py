"""
Transactional messages: a journal, decisions, checks, and their delivery.

Sits between: the request handlers and the store. Carries out each decision once.
"""
