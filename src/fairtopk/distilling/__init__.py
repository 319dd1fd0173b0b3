"""Fair order distilled into a scorer: a re-ranker teaches, with labels, what needs none."""
