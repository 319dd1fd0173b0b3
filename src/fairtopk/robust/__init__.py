"""Robust fair ranking (Memarrast et al. 2023): a game of a fair ranker and an adversary.

The ranker chooses a random ranking, a doubly stochastic P whose groups get the same exposure.
The adversary chooses relevance q in [0, 1] that has no more to do with the true relevance u
than the mean of features:

    max_P min_q mean of q^T P v,  with f^T P v = 0 and the mean of X^T q that of X^T u.

It needs the group of each item when it serves.
"""
