"""
What runs in a Spark task: reads its slice of the topic, gates it and folds it.

Sits between: a Spark job and the broker. Imports nothing of the driver's side.
"""
