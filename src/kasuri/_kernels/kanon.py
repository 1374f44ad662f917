"""Group counts for k-anonymity: distinct keys, and the check and the act of splitting one node of one tree."""

import numpy as np

from kasuri._kernels.cached import njit


@njit()
def runs(keys):
    """Starts of the runs of equal keys in a sorted array, and the array's size at the end."""
    count = 1 if keys.size else 0
    for i in range(1, keys.size):
        if keys[i] != keys[i - 1]:
            count += 1
    starts = np.empty(count + 1, np.int64)
    at = 0
    for i in range(keys.size):
        if i == 0 or keys[i] != keys[i - 1]:
            starts[at] = i
            at += 1
    starts[count] = keys.size
    return starts


@njit()
def by_leaf(leaf, leaves):
    """(positions in the order of their leaf, how many come before each leaf): a counting sort."""
    starts = np.zeros(leaves + 1, np.int64)
    for i in range(leaf.size):
        starts[leaf[i] + 1] += 1
    for v in range(leaves):
        starts[v + 1] += starts[v]
    place = starts[:-1].copy()
    order = np.empty(leaf.size, np.int32)
    for i in range(leaf.size):
        order[place[leaf[i]]] = i
        place[leaf[i]] += 1
    return order, starts


@njit()
def try_split(order, edges, shares, share, of, weights, size, ncp, k, worst, scratch):
    """What splitting one node would do to the rows in classes below k, and to the loss.

    `order[edges[c]:edges[c+1]]` are the tuples under child c, whose share of the tree's leaves is shares[c]; the node's
    own is `share`. `of` is each tuple's class, `size` and `ncp` each class's rows and loss per row; a row in a class
    below k is suppressed and loses `worst`. Returns (change of suppressed rows, change of loss).
    `scratch` is 0 everywhere on entry and on return.
    """
    rows = np.int64(0)
    loss = 0.0
    for c in range(edges.size - 1):
        for i in range(edges[c], edges[c + 1]):
            t = order[i]
            scratch[of[t]] += weights[t]
        for i in range(edges[c], edges[c + 1]):
            group = of[order[i]]
            part = scratch[group]
            if part > 0:
                scratch[group] = 0
                before = ncp[group]
                if size[group] < k:
                    before = worst
                    rows -= part
                after = ncp[group] - share + shares[c]
                if part < k:
                    after = worst
                    rows += part
                loss += part * (after - before)
    return rows, loss


@njit()
def split(order, edges, shares, share, of, weights, size, ncp, classes, owner, fresh, fresh_at, stamp):
    """Carry out the split: the number of classes afterwards.

    In every class the first child met keeps the class's number, each other child gets a new one. Child c of this call
    is marked stamp + c in `owner` (who keeps the number) and `fresh_at` (for whom `fresh` holds); older marks are
    smaller, so nothing needs clearing.
    """
    for c in range(edges.size - 1):
        for i in range(edges[c], edges[c + 1]):
            t = order[i]
            group = of[t]
            if owner[group] < stamp:
                owner[group] = stamp + c
                ncp[group] += shares[c] - share
            if owner[group] != stamp + c:
                if fresh_at[group] != stamp + c:
                    fresh_at[group] = stamp + c
                    fresh[group] = classes
                    size[classes] = 0
                    ncp[classes] = ncp[group] - shares[owner[group] - stamp] + shares[c]
                    classes += 1
                new = fresh[group]
                size[group] -= weights[t]
                size[new] += weights[t]
                of[t] = new
    return classes


@njit()
def class_sums(of, weights, classes):
    """Rows of each class."""
    out = np.zeros(classes, np.int64)
    for t in range(of.size):
        out[of[t]] += weights[t]
    return out


def warm_up():
    runs(np.array([0, 0, 1], np.int64))
    order, edges = by_leaf(np.array([0, 1], np.int32), 2)
    of = np.zeros(2, np.int32)
    shares, size, ncp = np.array([0.5, 0.5]), np.array([2, 0]), np.ones(2)
    weights, owner, fresh, fresh_at = (np.full(2, x, np.int64) for x in (1, 0, 0, 0))
    class_sums(of.astype(np.int64), weights, 1)
    try_split(order, edges, shares, 1.0, of, weights, size, ncp, 1, 1.0, np.zeros(2, np.int64))
    split(order, edges, shares, 1.0, of, weights, size, ncp, 1, owner, fresh, fresh_at, 1)
