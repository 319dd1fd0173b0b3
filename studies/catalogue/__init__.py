"""Fairness on the full catalogue of MovieLens."""
