"""Stochastic gradients with respect to scores, with the state that they keep."""
