"""Rankers of features on published data with protected groups."""
