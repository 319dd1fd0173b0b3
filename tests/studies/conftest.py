"""The runs of `fairtopk reproduce`, for every test of this folder."""

from paper_runs import made, views

__all__ = ["made", "views"]
