"""The command line: what it asks, says and shows."""
