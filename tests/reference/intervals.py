"""Least squares on a drawn tree by the normal equations, densely and slowly."""

import numpy as np


def covariance(nodes, parent, y, variance):
    """Estimates and covariance matrix of the drawn nodes without drawn children, and which nodes those are."""
    ends = [n for n in nodes if n not in set(parent.values())]
    rows = np.array([[1.0 if under(end, n, parent) else 0.0 for end in ends] for n in nodes])
    weights = np.diag([1 / variance[n] for n in nodes])
    information = rows.T @ weights @ rows
    inverse = np.linalg.inv(information)
    return inverse @ rows.T @ weights @ np.array([y[n] for n in nodes]), inverse, ends


def under(node, above, parent):
    while node is not None:
        if node == above:
            return True
        node = parent.get(node)
    return False
