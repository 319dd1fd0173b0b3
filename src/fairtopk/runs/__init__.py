"""Runs: a config, a folder, a training, a measurement, a sweep."""
