"""Fair top-K learning to rank."""

__version__ = "0.1.0"
