"""Optimizers that visit the rows of large tables only when they are needed."""
