"""
`headrace projection`: read models, their rebuilds and their state.

Used by an operator; uses the database of read models.
"""
