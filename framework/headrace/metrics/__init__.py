"""
The metrics of a running application: their table, and where each value comes from.

Used by `headrace run`, which serves them; reads the running application, and asks the database how far projections
are behind.
"""
