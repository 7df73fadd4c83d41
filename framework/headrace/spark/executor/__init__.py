"""
What runs in a Spark task: reads its slice of the topic, gates it and folds it.

Used by a Spark job; reads from the broker. It imports nothing of the driver's side.
"""
