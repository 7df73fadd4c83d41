"""
What the driver does of a rebuild with Spark: opens, plans, runs the job, loads its result, reports.

Used by `rebuild`; uses the job and the shadow of a projection.
"""
