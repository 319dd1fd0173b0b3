"""Scorers of users and items, and of documents; their optimizers."""
