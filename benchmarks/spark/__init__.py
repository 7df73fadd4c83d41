"""What Spark costs: topics as tables, and rebuilds, each beside a yardstick."""
