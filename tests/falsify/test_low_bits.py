"""The last bits of released numbers: no float path is reachable by default, and the attack works where there is one.

Floating-point noise leaves the truth in the last bits: x + noise lies on a lattice that depends on x [Mironov2012].
The attack here: note the last bits of everything released about one table, and see which of them can never come from
its neighbour. Whole numbers and public grids show the same last bits whatever the truth.
"""

import inspect
from importlib import import_module

import numpy as np
import pytest

import kasuri as ks
from kasuri import job
from kasuri.cli.release import release as command
from kasuri.local import categorical, numeric
from kasuri.noise.laws import IDEALISED
from kasuri.recipes import RECIPES

PERSON = ks.Unit("person", "add-remove", 1)
DOMAIN = ks.Domain.of(ks.Mesh("g", shape=(2, 2)))
TRUTH = np.array([[0, 3], [1, 7]])
ONE_MORE = TRUTH + np.array([[1, 0], [0, 0]])  # whose cell was empty
LATTICE = 53


def last_bits(values) -> list[tuple[int, int]]:
    """The grain of each number (the exponent of its last set bit, 2 at most), and a whole number's rest by 4."""
    found = []
    for value in np.asarray(values).tolist():
        mantissa, exponent = float(value).as_integer_ratio()
        grain = -(exponent.bit_length() - 1) or min(2, (mantissa & -mantissa).bit_length() - 1 if mantissa else 2)
        found.append((grain, int(value) % 4 if grain >= 0 else -1))
    return found


def shown(recipe, truth, seeds, epsilon="0.2"):
    """Every last bit of the cells and of the measured numbers, over many seeded runs."""
    counts = ks.Counts.from_dense(truth, DOMAIN, PERSON, data="bits")
    cells, measured, kinds = set(), set(), set()
    for seed in range(seeds):
        out = ks.release(counts, recipe, epsilon=epsilon, ledger=None, source=ks.seeded(seed), threads=1)
        cells |= set(zip(range(4), last_bits(out.to_dense().ravel()), strict=True))
        kinds.add(out.values.dtype.kind)
        if out.measurements is not None:
            nodes = zip(out.measurements.level.tolist(), out.measurements.prefix.tolist(), strict=True)
            measured |= set(zip(nodes, last_bits(out.measurements.value), strict=True))
            kinds.add(out.measurements.value.dtype.kind)
    return cells, measured, kinds


def told(record_property, name, tried, found):
    for key, value in (("section", "side doors"), ("name", name), ("tried", tried), ("found", found)):
        record_property(key, value)


def test_no_default_path_is_idealised(record_property):
    """Only `laplace` and `haar_topdown(transform="haar")` say "idealised numerics"; both must be asked for by name."""
    floats = {name for name, make in RECIPES.items() if IDEALISED in make().guarantee(DOMAIN, PERSON, "1").assumes}
    assert floats == {"laplace"}
    asked = ks.haar_topdown(transform="haar").guarantee(DOMAIN, PERSON, "1")
    assert IDEALISED in asked.assumes
    defaults = {inspect.signature(command).parameters["recipe"].default, job.Job.model_fields["recipe"].default.name}
    assert defaults == {"best"}
    told(record_property, "float paths reachable by default", f"{len(RECIPES)} recipes, command, job", "none")


FITTED = ("hierarchy", "matrix")
"""Released as fractions: a fit, in floating point, to noisy whole numbers."""
GRID = {"privelet": -4}
"""Released as fractions on a public grid: halves of halves of whole numbers, down to this power of two."""
OPTIONS = {"lasso": ("1",), "neg_l2_simplex": ("0.95",), "nonneg_lasso": ("1",)}  # instead of minutes of tuning
WHOLE = sorted(set(RECIPES) - {"laplace", *FITTED}, key=lambda name: (name != "geometric", name))


@pytest.mark.parametrize("name", WHOLE)
def test_recipes_show_the_same_last_bits(name, record_property):
    seeds = 40 if name == "auto" else 120
    one, other = (shown(RECIPES[name](*OPTIONS.get(name, ())), truth, seeds) for truth in (TRUTH, ONE_MORE))
    assert one[2] == other[2] == {"f" if name in GRID else "i"}
    assert min(grain for _, (grain, _) in one[0]) >= GRID.get(name, 0)
    assert one[0] == other[0] and one[1] == other[1]
    told(
        record_property,
        f"last bits: {name}",
        f"2 x {seeds} releases of neighbours",
        "the same sets, on a public grid" if name in GRID else "the same sets, whole",
    )


@pytest.mark.parametrize("name", FITTED)
def test_what_is_fitted_is_whole(name, monkeypatch, record_property):
    """The fit sees noisy whole numbers alone, so its rounding follows from them: the truth has no bits of its own."""
    module = import_module("kasuri.recipes.hierarchy")
    fit, solve, seen = module.consistency, np.linalg.lstsq, []

    def consistency(levels, variances):
        answer = fit(levels, variances)
        seen.append(([noisy for noisy, _ in levels], answer, fit(levels, variances)))
        return answer

    def lstsq(rows, noisy):
        answer = solve(rows, noisy)
        seen.append(([noisy], answer[0], solve(rows, noisy)[0]))
        return answer

    monkeypatch.setattr(module, "consistency", consistency)
    monkeypatch.setattr(np.linalg, "lstsq", lstsq)
    for truth in (TRUTH, ONE_MORE):
        counts = ks.Counts.from_dense(truth, DOMAIN, PERSON, data="bits")
        for seed in range(20):
            out = ks.release(counts, RECIPES[name](), epsilon="0.2", ledger=None, source=ks.seeded(seed))
            noisy, answer, again = seen[-1]
            assert all((np.rint(part) == part).all() for part in noisy)
            assert np.array_equal(answer, again) and set(out.values.tolist()) <= set(answer.tolist())
    assert len(seen) == 40
    told(record_property, f"last bits: {name}", "2 x 20 releases of neighbours", "a function of whole numbers alone")


def test_the_attack_works_on_floats(record_property):
    """On float noise the last bits of one cell tell its truth for certain, in a fifth of all runs."""
    runs, bits = 400, []
    for truth in (TRUTH, ONE_MORE):
        counts = ks.Counts.from_dense(truth, DOMAIN, PERSON)
        outs = (ks.release(counts, ks.laplace(), epsilon="1", ledger=None, source=ks.seeded(i)) for i in range(runs))
        bits.append([grain for grain, _ in last_bits([out.to_dense()[0, 0] for out in outs])])
    empty, full = (np.array(grains) for grains in bits)
    assert full.min() >= -LATTICE  # 1 + noise never has finer bits than 2^-53
    certain = (empty < -LATTICE).mean()
    assert certain > 0.1
    told(record_property, "the same attack on `laplace` (papers only)", f"2 x {runs} releases",
         f"tells an empty cell for certain in {certain:.0%} of runs")  # fmt: skip


# -- local randomizers -------------------------------------------------------------------------------------------------

WARDS = ks.Nominal("ward", labels=("a", "b", "c"))
CATEGORICAL = {
    "unary": ks.local.unary(WARDS, epsilon="1"), "oue": ks.local.oue(WARDS, epsilon="1"),
    "grr": ks.local.grr(WARDS, epsilon="1"), "olh": ks.local.olh(WARDS, epsilon="1"),
    "hadamard": ks.local.hadamard(WARDS, epsilon="1"),
    "count_mean_sketch": ks.local.count_mean_sketch(WARDS, epsilon="1"),
}  # fmt: skip
NUMERIC = {
    "two_point": ks.local.two_point((0, 1), epsilon="1"), "piecewise": ks.local.piecewise((0, 1), epsilon="1", steps=4),
    "square_wave": ks.local.square_wave((0, 1), epsilon="1", steps=4),
    "hybrid": ks.local.hybrid((0, 1), epsilon="1", steps=4),
    "laplace": ks.local.laplace((0, 1), epsilon="2", steps=4, margin=4),
}  # fmt: skip


def test_every_randomizer_is_here():
    """memoised reports are unary ones of a unary one."""
    assert set(categorical.KINDS) == {randomizer.kind for randomizer in CATEGORICAL.values()}
    assert set(numeric.KINDS) == set(NUMERIC)


@pytest.mark.parametrize("name", CATEGORICAL)
def test_reports_of_categories_are_bits(name, record_property):
    randomizer = CATEGORICAL[name]
    sets = []
    for value in ("a", "b"):
        rows = randomizer.randomize([value] * 20_000, source=ks.seeded(1)).rows
        assert rows.dtype == np.uint8
        last = [(at, byte % 4) for at in range(rows.shape[1]) for byte in np.unique(rows[:, at]).tolist()]
        whole = {row.tobytes() for row in rows} if rows.shape[1] == 1 else set()
        sets.append((set(last), whole))
    assert sets[0] == sets[1]
    told(record_property, f"last bits: local {name}", "2 x 20,000 reports of two values", "the same sets, bytes")


@pytest.mark.parametrize("name", NUMERIC)
def test_reports_of_numbers_lie_on_a_public_grid(name, record_property):
    """0.1 + 0.2 and 0.3 are two doubles; so are the ends. All have the same possible outputs."""
    randomizer = NUMERIC[name]
    sets = []
    for value in (0.0, 0.3, 0.1 + 0.2, 1.0, np.nextafter(1.0, 0.0)):
        outputs = randomizer.unpack(randomizer.randomize([value] * 60_000, source=ks.seeded(1)).rows)
        assert outputs.dtype.kind == "i"
        sets.append(set(outputs.tolist()))
    assert sets.count(sets[0]) == len(sets) and len(sets[0]) == randomizer.outputs
    told(record_property, f"last bits: local {name} (numbers)", "5 x 60,000 reports of five values",
         f"the same {randomizer.outputs} outputs")  # fmt: skip
