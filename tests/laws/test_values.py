"""The values and their validation: every fault at once, no confidential value in any message."""

import json
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kasuri as ks
from kasuri.noise.laws import DiscreteLaplace
from kasuri.privacy import decimal, exact
from kasuri.recipes.mechanism import Run
from kasuri.schema import Domain, Mask, Mesh, Nominal, Ordered, Time, Tree, Unit

DOMAIN = Domain.of(Mesh("grid", level="500m", origin=(8400, 6080), shape=(4, 4)))
PERSON = Unit("person", "add-remove", 1)


def test_domain_json_round_trip():
    sea = np.zeros((3, 5), dtype=bool)
    sea[0, :2] = True
    domain = Domain.of(
        Mesh("grid", level="1km", origin=(10, 20), shape=(3, 5)),
        Ordered("age", 3, ("0-14", "15-64", "65+")),
        Nominal("ward", ("a", "b", "c"), Tree.of({"p": ["a", "b"], "q": ["c"]})),
        Time("hour", "2020-10-01T00:00", seconds=3600, size=24),
        mask={"grid": sea},
    )
    assert Domain.from_json(json.loads(json.dumps(domain.to_json()))) == domain
    assert domain.shape == (3, 5, 3, 3, 24)
    assert domain.dims == ("row", "col", "age", "ward", "hour")


@given(bits=st.lists(st.booleans(), min_size=1, max_size=40))
def test_mask_json_round_trip(bits):
    mask = Mask.of(("x",), np.array(bits))
    assert Mask.from_json(json.loads(json.dumps(mask.to_json()))) == mask


@given(shape=st.lists(st.integers(1, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_ravel_and_unravel(shape, seed):
    domain = Domain.of(*(Ordered(f"x{i}", size) for i, size in enumerate(shape)))
    cells = np.arange(domain.size)
    assert np.array_equal(domain.ravel(domain.unravel(cells)), cells)
    assert np.array_equal(cells, np.ravel_multi_index(np.unravel_index(cells, tuple(shape)), tuple(shape)))


def faults(call, kind):
    with pytest.raises(kind) as caught:
        call()
    return caught.value.faults


def test_every_fault_of_counts_at_once():
    cells = [3, 3, 99, -1, 4, 5, 6]
    values = [1.0, 2.0, 7.0, 1.0, -4242.0, 0.5, float("nan")]
    found = faults(lambda: ks.Counts.from_coo(cells, values, DOMAIN, PERSON), ks.DomainError)
    text = "\n".join(found)
    for rule in ("missing or not finite", "not a whole number", "negative", "outside the domain", "more than once"):
        assert rule in text
    assert "4242" not in text and "0.5" not in text


def test_masked_cells_are_refused():
    mask = np.zeros((4, 4), dtype=bool)
    mask[1, 1] = True
    domain = Domain.of(Mesh("grid", shape=(4, 4)), mask=mask)
    truth = np.zeros((4, 4))
    truth[1, 1] = 2
    assert "impossible by the mask" in faults(lambda: ks.Counts.from_dense(truth, domain, PERSON), ks.DomainError)[0]


@pytest.mark.parametrize("values", [[1 << 62, 1], [3 << 61, 0], [np.iinfo(np.int64).max] * 2])
def test_totals_beyond_2_62_are_refused(values):
    text = "\n".join(faults(lambda: ks.Counts.from_coo([0, 1], values, DOMAIN, PERSON), ks.DomainError))
    assert "2^62" in text
    assert ks.Counts.from_coo([0, 1], [(1 << 62) - 1, 1], DOMAIN, PERSON).values.sum() == 1 << 62


def test_uint64_and_small_types():
    big = np.array([np.iinfo(np.uint64).max, 1], dtype=np.uint64)
    assert faults(lambda: ks.Counts.from_coo([0, 1], big, DOMAIN, PERSON), ks.DomainError)
    assert ks.Counts.from_coo([1, 0], np.array([200, 100], dtype=np.uint8), DOMAIN, PERSON).values.tolist() == [
        100,
        200,
    ]


def test_counts_drop_zeros_sort_and_hide_their_data():
    counts = ks.Counts.from_coo([9, 2, 5], [4243, 0, 7], DOMAIN, PERSON, data="census")
    assert counts.cells.tolist() == [5, 9]
    assert "4243" not in repr(counts) and "confidential" in repr(counts)
    with pytest.raises(ValueError):
        counts.values[0] = 1


def test_counts_cannot_be_built_wrong():
    mask = np.array([False, False, True])
    domain = Domain.of(Ordered("x", 3), mask=mask)
    cells, values = np.array([0, 1]), np.array([1, 2])
    assert ks.Counts(domain, cells, values, PERSON).assumes
    for bad_cells, bad_values in (([1, 0], [1, 2]), ([0, 2], [1, 2]), ([0, 3], [1, 2]), ([0, 1], [1, 0]),
                                  ([0, 1], [1.0, 2.0]), ([0, 0], [1, 1]), ([-1, 0], [1, 1]),
                                  ([0, 1], [1 << 62, 1])):  # fmt: skip
        with pytest.raises(ks.DomainError):
            ks.Counts(domain, np.array(bad_cells), np.array(bad_values), PERSON)
    with pytest.raises(ks.DomainError, match="masked array"):
        ks.Counts.from_coo([0, 1], np.ma.masked_array([5, 1000], [False, True]), domain, PERSON)
    with pytest.raises(ks.DomainError, match="whole numbers"):
        ks.Counts.from_coo([0], np.array([3], dtype="m8[s]"), domain, PERSON)


def test_mechanisms_and_sources_cannot_be_made_up():
    with pytest.raises(TypeError, match="abstract"):  # a recipe without a draw, an error or words is not a recipe
        ks.Mechanism("privelet", "docs/proofs/privelet.md")

    @dataclass(frozen=True)
    class Half(ks.Mechanism):
        def on(self, domain, unit, epsilon):
            return HalfRun(self, domain, self.claim(domain, unit, epsilon, DiscreteLaplace), 1, DiscreteLaplace(1))

        def stored(self):
            return {}

    class HalfRun(Run):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Half("half", "x").on(Domain.of(Ordered("x", 2)), PERSON, "1")

    class Fake:
        secure = True

        def release_key(self):
            return bytes(32)

        def words(self):
            return "operating system"

    counts = ks.Counts.from_coo([0], [5], DOMAIN, PERSON)
    with pytest.raises(ks.PrivacyError, match="source"):
        ks.release(counts, ks.geometric(), epsilon="1", ledger=None, source=Fake())
    out = ks.release(counts, ks.geometric(), epsilon="1", ledger=None, source=ks.seeded(1))
    with pytest.raises(TypeError):
        out.provenance["secure"] = True


def test_axis_names_that_are_columns_of_a_release():
    with pytest.raises(ks.DomainError, match="choose another"):
        Domain.of(Ordered("cell", 3))
    with pytest.raises(ks.DomainError, match="dimensions"):
        Domain.of(*(Ordered(f"x{i}", 1) for i in range(61)))


def test_a_tiny_epsilon_is_refused_before_anything_is_drawn():
    counts = ks.Counts.from_coo([0], [5], DOMAIN, PERSON)
    with pytest.raises(ks.PrivacyError, match="too small"):
        ks.release(counts, ks.haar_topdown(), epsilon="1e-17", ledger=None)


def test_missing_unit_and_bad_units():
    assert "unit" in faults(lambda: ks.Counts.from_coo([], [], DOMAIN, None), ks.PrivacyError)[0]
    assert len(faults(lambda: Unit("", "swap", 0, -1), ks.PrivacyError)) == 4
    assert faults(lambda: Unit("p", "replace", True), ks.PrivacyError)


@pytest.mark.parametrize("value", [0.1, "0", "-1", "nan", "inf", "abc", True, None, Fraction(0), "1e400000000000"])
def test_epsilon_is_an_exact_positive_decimal(value):
    counts = ks.Counts.from_coo([0], [5], DOMAIN, PERSON)
    with pytest.raises(ks.PrivacyError):
        ks.release(counts, ks.geometric(), epsilon=value, ledger=None)


@pytest.mark.parametrize(("text", "value"), [("0.1", Fraction(1, 10)), ("2", Fraction(2)), ("1/3", Fraction(1, 3)),
                                             (" 1e-3 ", Fraction(1, 1000))])  # fmt: skip
def test_exact(text, value):
    assert exact(text) == value
    assert exact(decimal(value)) == value
    assert exact(Decimal("0.25")) == Fraction(1, 4)


def test_release_wants_the_ledger_written_out():
    counts = ks.Counts.from_coo([0], [5], DOMAIN, PERSON)
    with pytest.raises(TypeError):
        ks.release(counts, ks.geometric(), epsilon="1")


def test_domain_faults_at_once():
    found = faults(
        lambda: Domain.of(Ordered("x", 3), Ordered("x", 2), mask={"y": np.zeros(3, bool), "x": np.ones(4, bool)}),
        ks.DomainError,
    )
    assert len(found) == 3
    assert "no possible cell" in faults(lambda: Domain.of(Ordered("x", 2), mask=np.ones(2, bool)), ks.DomainError)[0]
    assert "2^62" in faults(lambda: Domain.of(Ordered("x", 1 << 40), Ordered("y", 1 << 40)), ks.DomainError)[0]
    with pytest.raises(ks.DomainError, match="500m"):
        Mesh("g", level="333m", shape=(2, 2))
    with pytest.raises(ks.DomainError, match="kanto"):
        Mesh.window("g", "atlantis")


def test_window_of_a_first_order_mesh():
    mesh = Mesh.window("g", "5339")
    assert mesh.origin == (53 * 160, 39 * 160) and mesh.shape == (160, 160)


def test_area_and_labels():
    domain = Domain.of(Mesh("grid", shape=(4, 4)), Nominal("sex", ("f", "m")))
    truth = np.arange(32).reshape(4, 4, 2)
    counts = ks.Counts.from_dense(truth, domain, PERSON)
    # scale 1/1000: no noise
    out = ks.release(counts, ks.geometric(), epsilon="1000 weak", ledger=None, source=ks.seeded(1))
    assert np.array_equal(out.to_dense(), truth)
    assert out.area(rows=slice(1, 3), cols=slice(0, 2), sex="m") == truth[1:3, :2, 1].sum()
    assert out.area(rows=2) == truth[2].sum()
    assert out.area() == out.total() == truth.sum()
    for wrong in ({"rows": 4}, {"sex": "x"}, {"age": 1}, {"rows": slice(0, 9)}, {"rows": slice(0, 4, 2)}):
        with pytest.raises(ks.DomainError):
            out.area(**wrong)


@pytest.mark.parametrize("recipe", [lambda: ks.haar_topdown("hilbert"), lambda: ks.privelet("3d"),
                                    lambda: ks.haar_topdown(transform="haar", descent="jump"),
                                    lambda: ks.haar_topdown("1d", interleave=("a",))])  # fmt: skip
def test_unknown_options_of_recipes(recipe):
    with pytest.raises(ks.DomainError):
        recipe()


def test_dense_recipes_refuse_huge_domains_before_anything_else():
    domain = Domain.of(Mesh("g", shape=(1 << 18, 1 << 18)))
    counts = ks.Counts.from_coo([5], [2], domain, PERSON)
    for recipe in (ks.geometric(), ks.laplace(), ks.privelet(), ks.privelet("2d"), ks.haar_topdown(transform="haar"),
                   ks.haar_topdown(descent="dense")):  # fmt: skip
        with pytest.raises(ks.DomainError, match="haar_topdown"):
            ks.release(counts, recipe, epsilon="1", ledger=None)
