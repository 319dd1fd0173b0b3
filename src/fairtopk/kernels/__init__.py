"""Compiled loops: arrays in, arrays out, no knowledge of what they are for."""
