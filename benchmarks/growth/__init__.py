"""What becomes of the queue's speed and memory as there is more of something."""
