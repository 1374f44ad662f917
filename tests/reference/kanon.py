"""Slow, obvious twins of kasuri.kanon: plain Python on rows of labels, no kernel, exact fractions."""

import itertools
import math
from collections import Counter, defaultdict
from fractions import Fraction


class Tree:
    """A tree of labels: {label: parent}, the root without one."""

    def __init__(self, labels, parent):
        self.labels = list(labels)
        self.parent = list(parent)
        self.below = defaultdict(list)
        for node, above in enumerate(self.parent):
            if above >= 0:
                self.below[above].append(node)

    def leaves_under(self, node):
        if node not in self.below:
            return {node}
        return set().union(*(self.leaves_under(child) for child in self.below[node]))

    def ncp(self, node):
        return Fraction(len(self.leaves_under(node)), len(self.leaves_under(0)))


def specialize(rows, trees, k):
    """Top-down specialisation on rows of leaf nodes: per attribute the set of nodes written."""
    cut = [{0} for _ in trees]
    failed = set()

    def written(row, cut):
        out = []
        for tree, node, nodes in zip(trees, row, cut, strict=True):
            while node not in nodes:
                node = tree.parent[node]
            out.append(node)
        return tuple(out)

    def total(cut):
        return sum(sum(tree.ncp(n) for tree, n in zip(trees, written(row, cut), strict=True)) for row in rows)

    while True:
        best = None
        for a, tree in enumerate(trees):
            for node in sorted(cut[a]):
                if (a, node) in failed or node not in tree.below:
                    continue
                if not any(node == w[a] for w in (written(row, cut) for row in rows)):
                    continue
                trial = [set(nodes) for nodes in cut]
                trial[a].remove(node)
                trial[a].update(tree.below[node])
                key = (total(trial), a, node)
                if best is None or key < best[0]:
                    best = (key, a, node, trial)
        if best is None:
            return cut, Counter(written(row, cut) for row in rows)
        _, a, node, trial = best
        if min(Counter(written(row, trial) for row in rows).values()) >= k:
            cut = trial
        else:
            failed.add((a, node))


def measures(rows, secret, ordered=False):
    """(k, distinct l, entropy l, t) of rows of labels with one sensitive value each."""
    classes = defaultdict(list)
    for row, value in zip(rows, secret, strict=True):
        classes[row].append(value)
    values = sorted(set(secret))
    n = len(secret)
    q = [Fraction(secret.count(v), n) for v in values]
    worst = Fraction(0)
    for members in classes.values():
        p = [Fraction(members.count(v), len(members)) for v in values]
        if ordered:
            sums = itertools.accumulate(a - b for a, b in zip(p, q, strict=True))
            worst = max(worst, sum((abs(s) for s in sums), Fraction(0)) / max(len(values) - 1, 1))
        else:
            worst = max(worst, sum(abs(a - b) for a, b in zip(p, q, strict=True)) / 2)

    def entropy(members):
        counts = Counter(members)
        return -sum(c / len(members) * math.log(c / len(members)) for c in counts.values())

    return (
        min(len(m) for m in classes.values()),
        min(len(set(m)) for m in classes.values()),
        min(math.exp(entropy(m)) for m in classes.values()),
        float(worst),
    )


def binomial(n, beta):
    return [math.comb(n, x) * beta**x * (1 - beta) ** (n - x) for x in range(n + 1)]


def shown(pmf, k):
    """The law of max(X, k)-or-hidden: index 0 is hidden."""
    return [sum(pmf[:k], Fraction(0)), *pmf[k:]]


def hockey_stick(epsilon, beta, k, sizes):
    """The largest of both divergences over the given class sizes, with e^epsilon as a 60-digit fraction."""
    e = Fraction(math.exp(float(epsilon)))
    best = Fraction(0)
    for n in sizes:
        p = shown(binomial(n, beta), k)
        q = shown([*binomial(n - 1, beta), Fraction(0)], k)
        best = max(
            best,
            sum((max(a - e * b, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0)),
            sum((max(b - e * a, Fraction(0)) for a, b in zip(p, q, strict=True)), Fraction(0)),
        )
    return best


def both_divergences(e, beta, k, n):
    """(sum (P - e Q)+, sum (Q - e P)+) of one class size, exactly."""
    p = shown(binomial(n, beta), k)
    q = shown([*binomial(n - 1, beta), Fraction(0)], k)
    return tuple(
        sum((max(a - e * b, Fraction(0)) for a, b in zip(x, y, strict=True)), Fraction(0)) for x, y in ((p, q), (q, p))
    )


def theorem(epsilon, beta, k, sizes):
    """max over n >= ceil(k/gamma - 1) of Pr[Bin(n, beta) > gamma n] [Li2012]."""
    e = math.exp(float(epsilon))
    gamma = (e - 1 + float(beta)) / e
    first = math.ceil(k / gamma - 1)
    return max(float(sum(binomial(n, beta)[math.floor(gamma * n) + 1 :])) for n in sizes if n >= first)


def linkage(rows, seen, keep, sizes):
    """Posterior probability of every (person, released row) pair, by all permutations [Ikarashi2015]."""

    def weight(row, out):
        w = Fraction(1)
        for a, b, rho, size in zip(row, out, keep, sizes, strict=True):
            w *= (rho if a == b else 0) + (1 - rho) / size
        return w

    n = len(rows)
    joint = [[Fraction(0)] * n for _ in range(n)]
    for order in itertools.permutations(range(n)):
        w = math.prod((weight(rows[i], seen[order[i]]) for i in range(n)), start=Fraction(1))
        for i in range(n):
            joint[i][order[i]] += w
    total = sum(joint[0])
    return [[cell / total for cell in line] for line in joint]


def full_domain(rows, trees, k):
    """Greedy full-domain specialisation: lower one attribute by a whole level, the one of least NCP that keeps k."""
    depth = [0] * len(trees)

    def at(tree, node, level):
        path = [node]
        while tree.parent[path[-1]] >= 0:
            path.append(tree.parent[path[-1]])
        return path[::-1][min(level, len(path) - 1)]

    def classes(depth):
        out = Counter()
        for row, count in rows.items():
            out[tuple(at(t, n, d) for t, n, d in zip(trees, row, depth, strict=True))] += count
        return out

    def total(found):
        return sum(c * sum(t.ncp(n) for t, n in zip(trees, nodes, strict=True)) for nodes, c in found.items())

    best = classes(depth)
    while True:
        trials = []
        for a in range(len(trees)):
            lower = [d + (i == a) for i, d in enumerate(depth)]
            found = classes(lower)
            if found.keys() != best.keys() and min(found.values()) >= k:
                trials.append((total(found), lower, found))
        if not trials:
            return total(best), best
        _, depth, best = min(trials, key=lambda trial: trial[:2])
