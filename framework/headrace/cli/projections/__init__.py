"""
`headrace projection`: read models, their rebuilds and their state.

Sits between: an operator and the database of read models.
"""
