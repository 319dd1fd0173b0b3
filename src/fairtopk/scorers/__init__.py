"""Scorers h_q(x; w): from a batch of lists to scores."""
