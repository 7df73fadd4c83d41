"""
From the rows of a Spark job to the database of read models.

Used by a job's tasks; fills the shadow generation.
"""
