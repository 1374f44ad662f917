"""The integer projection against its slow twin in exact rationals."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reference.law import project

from kasuri.refine.least_squares import simplex_integers


@given(
    groups=st.lists(
        st.tuples(st.lists(st.integers(-40, 60), min_size=1, max_size=7), st.integers(1, 30)), min_size=1, max_size=5
    )
)
def test_projection_is_the_slow_twin(groups):
    scaled = np.array([e for values, _ in groups for e in values], dtype=np.int64)
    starts = np.cumsum([0, *(len(values) for values, _ in groups)])
    totals = np.array([total for _, total in groups], dtype=np.int64)
    out = simplex_integers(scaled, starts, totals)
    for g, (values, total) in enumerate(groups):
        mine = out[starts[g] : starts[g + 1]].tolist()
        assert mine == project([Fraction(value, len(values)) for value in values], total)
        assert sum(mine) == total and min(mine) >= 0


@given(values=st.lists(st.integers(-(1 << 61), 1 << 61), min_size=1, max_size=6), total=st.integers(1, 1 << 62))
def test_beyond_64_bits_the_same(values, total):
    scaled = np.array(values, dtype=object) * len(values)
    out = simplex_integers(scaled, np.array([0, len(values)]), np.array([total]))
    assert out.tolist() == project([Fraction(value) for value in values], total)
