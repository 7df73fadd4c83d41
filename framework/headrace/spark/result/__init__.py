"""
From the rows of a Spark job to the database of read models.

Sits between: a job's tasks and the shadow generation.
"""
