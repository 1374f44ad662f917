"""Laws of kasuri.kanon against slow twins: specialisation, measures, (epsilon, delta), Pk-anonymity."""

import math
from collections import Counter
from fractions import Fraction
from itertools import islice

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from reference import kanon as slow

from kasuri import DomainError, kanon, seeded
from kasuri.kanon.classes import tuples_of
from kasuri.kanon.delta import divergences, tail
from kasuri.kanon.recoding import encode
from kasuri.kanon.specialize import Conditions, _State

TREES = (
    kanon.categories("a", {"x": ["a0", "a1"], "y": ["a2", {"z": ["a3", "a4"]}]}),
    kanon.numbers("b", 0, 40, [10, 20]),
    kanon.categories("c", ["c0", "c1", "c2"]),
)
SPEC = kanon.Recoding.of(*TREES)

rows_of = st.lists(
    st.tuples(st.sampled_from(["a0", "a1", "a2", "a3", "a4"]), st.integers(0, 39), st.sampled_from(["c0", "c1", "c2"])),
    min_size=4,
    max_size=40,
)


def frame(rows, **more):
    return pd.DataFrame(rows, columns=["a", "b", "c"]).assign(**more)


def nodes_of(rows):
    coded = encode(frame(rows), SPEC)
    return list(zip(*(t.leaf_nodes[leaf].tolist() for t, leaf in zip(TREES, coded.leaves, strict=True)), strict=True))


@given(rows_of, st.integers(2, 5))
def test_specialise_equals_the_slow_twin(rows, k):
    assume(len(rows) >= k)
    out = kanon.specialize(frame(rows), SPEC, k=k)
    twins = [slow.Tree(t.labels, t.parent.tolist()) for t in TREES]
    _, classes = slow.specialize(nodes_of(rows), twins, k)
    found = out.classes().to_pylist()
    assert {tuple(c[t.name] for t in TREES): c["rows"] for c in found} == {
        tuple(t.labels[n] for t, n in zip(TREES, nodes, strict=True)): size for nodes, size in classes.items()
    }
    ncp = sum(size * sum(t.ncp(n) for t, n in zip(twins, nodes, strict=True)) for nodes, size in classes.items())
    assert out.ncp == pytest.approx(float(ncp))


@given(rows_of, st.integers(2, 5), st.sampled_from(["0", "0.1", "0.3"]))
def test_every_class_keeps_k_and_no_row_is_lost_silently(rows, k, suppression):
    assume(len(rows) >= k)
    out = kanon.specialize(frame(rows), SPEC, k=k, suppression=suppression)
    counted = Counter(tuple(line.values()) for line in out.table().to_pylist())
    assert not counted or min(counted.values()) >= k
    assert sum(counted.values()) + out.suppressed == len(rows)
    assert out.suppressed <= Fraction(suppression) * len(rows)
    share = [
        {label: (h - low) / t.leaves for label, h, low in zip(t.labels, t.high, t.low, strict=True)} for t in TREES
    ]
    lost = sum(c * sum(one[label] for one, label in zip(share, line, strict=True)) for line, c in counted.items())
    assert out.ncp == pytest.approx(lost + out.suppressed * len(TREES))
    assert out.ncp <= kanon.specialize(frame(rows), SPEC, k=10**3 if len(rows) >= 10**3 else len(rows)).ncp + 1e-9


def test_no_split_is_bought_with_more_loss_than_it_saves():
    """Splitting `a` would save 8 * 0.1 on eight rows and cost 2 * 0.5 by suppressing two: it is not made."""
    spec = kanon.Recoding.of(
        kanon.categories("a", {"g": [f"a{i}" for i in range(9)], "h": ["z"]}), kanon.categories("b", ["p", "q"])
    )
    rows = pd.DataFrame({"a": ["a1"] * 8 + ["z"] * 2, "b": ["p", "q"] * 5})
    out = kanon.specialize(rows, spec, k=3, suppression="0.3")
    assert out.written() == {"a": ["*"], "b": ["p", "q"]} and out.suppressed == 0


@given(rows_of, st.lists(st.tuples(st.integers(0, 2), st.integers(0, 8)), max_size=8))
def test_the_loss_of_every_class_is_kept_up_as_nodes_are_split(rows, splits):
    coded = encode(frame(rows), SPEC)
    tuples = tuples_of(coded)
    state = _State(coded, tuples, Conditions(1, suppression=Fraction(1, 2)))
    for a, node in splits:
        tree = TREES[a]
        if node < len(tree.labels) and tree.children[node] and node in state.cut()[a] and state.rows_under(a, node):
            before = state.ncp[state.of] @ tuples.weights
            assert state.split(a, node)
            gain = state.gain(a, node)
            assert before - state.ncp[state.of] @ tuples.weights == pytest.approx(gain)
    shares = [
        (t.high - t.low)[c][leaf] / t.leaves for t, c, leaf in zip(TREES, state.cut(), tuples.leaves, strict=True)
    ]
    assert state.ncp[state.of] == pytest.approx(sum(shares))
    assert state.size[state.of].tolist() == [int(tuples.weights[state.of == c].sum()) for c in state.of]


@given(rows_of, st.integers(2, 5), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_show(rows, k, random):
    assume(len(rows) >= k)
    shuffled = rows[:]
    random.shuffle(shuffled)
    for make in (kanon.specialize, kanon.mondrian):
        assert make(frame(rows), SPEC, k=k).table().equals(make(frame(shuffled), SPEC, k=k).table())


@given(rows_of, st.integers(2, 4))
def test_mondrian_keeps_k_and_covers_every_row(rows, k):
    assume(len(rows) >= k)
    out = kanon.mondrian(frame(rows), SPEC, k=k)
    assert out.k >= k and out.rows == len(rows)
    assert out.ncp <= len(rows) * len(TREES) + 1e-9
    audit = kanon.audit(frame(rows), SPEC, k=k, sampling_rate=0.5, release=out.table())
    assert np.all(audit.realised.original >= audit.realised.released)
    assert audit.realised.infinite == audit.measures.classes or audit.could_split.size


@given(rows_of, st.integers(2, 4), st.integers(2, 3), st.sampled_from(["0.2", "0.4", None]), st.booleans())
def test_l_and_t_hold_in_what_is_published(rows, k, l_diversity, t, ordered):
    order = "ordered" if ordered else "nominal"
    spec = kanon.Recoding.of(*TREES[:2], sensitive={"c": order})
    assume(len(rows) >= k and len({row[2] for row in rows}) >= l_diversity)
    for make, more in ((kanon.specialize, {}), (kanon.specialize, {"suppression": "0.3"}), (kanon.mondrian, {})):
        if t is not None and more:  # rows left out would move the distribution that t is measured from
            with pytest.raises(DomainError, match="do not go together"):
                make(frame(rows), spec, k=k, l_diversity=l_diversity, t_closeness=t, **more)
            continue
        out = make(frame(rows), spec, k=k, l_diversity=l_diversity, t_closeness=t, **more)
        if out.rows:
            found = out.measures.sensitive[0]
            assert out.k >= k and found.distinct_l >= l_diversity
            if t is not None:
                assert found.t <= float(t) + 1e-9


@given(rows_of, st.booleans())
def test_measures_equal_the_slow_twin(rows, ordered):
    order = "ordered" if ordered else "nominal"
    secret = [row[1] // 10 for row in rows]
    found = kanon.measure(frame(rows, s=secret), ["a", "c"], {"s": order})
    k, l_distinct, l_entropy, t = slow.measures([(r[0], r[2]) for r in rows], secret, ordered)
    one = found.sensitive[0]
    assert (found.k, one.distinct_l) == (k, l_distinct)
    assert one.entropy_l == pytest.approx(l_entropy)
    assert one.t == pytest.approx(t, abs=1e-12)
    assert found.discernibility == sum(c * c for c in Counter((r[0], r[2]) for r in rows).values())
    assert found.unique == sum(c == 1 for c in Counter((r[0], r[2]) for r in rows).values())


def test_every_frame_gives_the_same_release():
    rng = np.random.default_rng(5)
    data = {
        "a": rng.choice(["a0", "a1", "a2", "a3", "a4"], 400),
        "b": rng.integers(0, 40, 400),
        "c": rng.choice(["c0", "c1", "c2"], 400),
    }
    frames = [pd.DataFrame(data), pl.DataFrame(data), pa.table(data), pl.DataFrame(data).lazy()]
    frames.append(pd.DataFrame(data).astype({"a": "category", "b": "float64"}))
    tables = [kanon.specialize(f, SPEC, k=4).table() for f in frames]
    assert all(table.equals(tables[0]) for table in tables)


def test_many_attributes_do_not_overflow_the_keys():
    rng = np.random.default_rng(6)
    names = [f"n{i}" for i in range(12)]
    spec = kanon.Recoding.of(*(kanon.numbers(name, 0, 1000, [1, 10, 100]) for name in names))
    data = pd.DataFrame({name: rng.integers(0, 3, 300) * 400 for name in names})
    out = kanon.specialize(data, spec, k=5)
    assert out.k >= 5 and out.rows == 300


@settings(max_examples=40)
@given(
    st.integers(2, 9), st.fractions("0.02", "0.9", max_denominator=50), st.fractions("0.05", "3", max_denominator=40)
)
def test_exact_delta_is_the_largest_hockey_stick(k, rate, epsilon):
    sampling = kanon.Sampling(rate, k)
    found = kanon.exact_delta(epsilon, sampling)
    twin = slow.hockey_stick(epsilon, rate, k, range(1, 60))
    assert found >= twin * (1 - Fraction(1, 10**12))  # an upper bound of every class size
    assert found >= sampling.least_delta
    wide = slow.hockey_stick(epsilon, rate, k, (61, 83, 127, 190))  # nothing larger beyond
    assert found >= wide * (1 - Fraction(1, 10**12))
    if k / (1 - (1 - float(rate)) * math.exp(-float(epsilon))) < 25:  # the largest lies among the sizes tried
        assert float(found) == pytest.approx(float(max(twin, wide)), rel=2e-5)


@settings(max_examples=30)
@given(
    st.integers(2, 6), st.fractions("0.05", "0.9", max_denominator=20), st.fractions("1.05", "9", max_denominator=40)
)
def test_both_divergences_equal_the_enumeration(k, rate, e):
    for n, leaves, enters in islice(divergences(e, kanon.Sampling(rate, k)), 30):
        twin = slow.both_divergences(e, rate, k, n)
        for bound, truth in zip((leaves, enters), twin, strict=True):
            assert truth <= bound <= truth + Fraction(1, 10**40)


@settings(max_examples=25)
@given(st.integers(2, 9), st.fractions("0.02", "0.8", max_denominator=50), st.fractions("0.1", "4", max_denominator=40))
def test_the_theorem_bounds_the_exact_delta_and_never_falls_below_beta_to_the_k(k, rate, epsilon):
    sampling = kanon.Sampling(rate, k)
    theorem = kanon.li_qardaji_su_delta(epsilon, sampling)
    if theorem is None:
        assert float(epsilon) < sampling.floor + 1e-12
        return
    assert theorem >= kanon.exact_delta(epsilon, sampling) >= sampling.least_delta == rate**k
    assert float(theorem) == pytest.approx(slow.theorem(epsilon, rate, k, range(1, 120)), rel=2e-5)


@given(st.integers(2, 6), st.sampled_from(["1/10", "1/5", "1/3"]), st.sampled_from(["0.001", "0.01"]))
def test_least_epsilon_and_least_k_are_least(k, rate, delta):
    sampling = kanon.Sampling(Fraction(rate), k)
    least = kanon.least_epsilon(delta, sampling)
    if least is None:
        assert sampling.least_delta >= Fraction(delta)  # equality is lost to rounding up
    else:
        assert kanon.exact_delta(least, sampling) <= Fraction(delta)
        assert least == Fraction(1, 1000) or kanon.exact_delta(least - Fraction(1, 1000), sampling) > Fraction(delta)
    enough = kanon.least_k(1, delta, Fraction(rate))
    assert kanon.exact_delta(1, kanon.Sampling(Fraction(rate), enough)) <= Fraction(delta)
    assert enough == 2 or kanon.exact_delta(1, kanon.Sampling(Fraction(rate), enough - 1)) > Fraction(delta)


@given(st.integers(1, 60), st.fractions("0.01", "0.99", max_denominator=100), st.integers(-1, 62))
def test_binomial_tails_enclose_the_truth(n, beta, start):
    low, high = tail(n, beta, start)
    truth = sum(slow.binomial(n, beta)[max(start, 0) :], Fraction(0))
    assert low <= truth <= high
    assert high - low <= Fraction(1, 10**40)


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 2)), min_size=2, max_size=5),
    st.sampled_from(["0", "1/10", "1/2", "9/10"]),
    st.randoms(use_true_random=False),
)
def test_no_permutation_attack_links_a_row_better_than_one_in_pk(rows, rho, random):
    keep, sizes = [Fraction(rho), Fraction(1, 3)], [2, 3]
    pk = kanon.pk_of(len(rows), sizes, keep)
    for _ in range(4):
        seen = [(random.randrange(2), random.randrange(3)) for _ in rows]
        posterior = slow.linkage(rows, seen, keep, sizes)
        assert max(max(line) for line in posterior) <= 1 / pk
    # the bound is reached: everyone else differs from the first person in everything, and so does the output
    if len({row[0] for row in rows}) == 2:
        assert pk >= 1


def test_the_pk_bound_is_tight():
    keep, sizes = [Fraction(1, 2)], [4]
    pk = kanon.pk_of(2, sizes, keep)
    assert slow.linkage([(0,), (1,)], [(0,), (1,)], keep, sizes)[0][0] == 1 / pk


def test_pk_retention_is_the_largest_that_gives_k():
    data = pd.DataFrame({"c": ["c0", "c1"] * 500})
    out = kanon.pk_anonymize(data, kanon.Recoding.of(TREES[2]), k=20, source=seeded(3))
    assert out.pk >= 20
    more = {name: rho + Fraction(1, 1 << 30) for name, rho in out.retention.items()}
    assert kanon.pk_of(1000, [3], list(more.values())) < 20
