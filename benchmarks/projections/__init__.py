"""What the read side costs: live projections, their lag, and a rebuild, each beside a yardstick."""
