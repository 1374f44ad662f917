"""release(): the one place where Counts meets noise (and `spark`, which pays and draws alike)."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import __version__, engine, transform
from kasuri.choose import choose, refined, variances
from kasuri.errors import KasuriError, PrivacyError, unknown
from kasuri.ledger import Ledger, Receipt
from kasuri.mechanism import Mechanism, Run, resolve
from kasuri.noise import discrete_laplace, passes, runs_below
from kasuri.privacy import Guarantee, asked, decimal
from kasuri.project import GAMMAS, THRESHOLDS, Rule, Tally, shape, tune
from kasuri.published import NO_LEDGER, Measurements, Release
from kasuri.recipes import RECIPES
from kasuri.recipes.words import recipe_words
from kasuri.refine import LARGEST, consistency, nonnegative_fit, topdown, topdown_float
from kasuri.rng import Source, Streams, secure
from kasuri.schema import Part
from kasuri.table import Counts
from kasuri.visit import measure_whole


def release(
    counts: Counts,
    mechanism: Mechanism,
    *,
    epsilon: object,
    ledger: Ledger | None,
    source: Source | None = None,
    threads: int | None = None,
) -> Release:
    """Publish `counts` with `mechanism` at `epsilon`: the one function that draws noise on counts.

    epsilon: an exact decimal such as "0.1"; above 20 with a second word, "25 weak". ledger: must be written out; it is
    charged, durably, before the release key is made, and nothing is refunded. None means unmetered, which the guarantee
    then says. source: `secure()` unless a test wants `seeded(n)`. threads: any number gives the same result.
    """
    if not isinstance(counts, Counts):
        raise PrivacyError("release() takes Counts (see count(), Counts.from_dense, Counts.from_coo)")
    source = checked(mechanism, ledger, source)
    run = resolve(mechanism, counts.domain, counts.unit, asked(epsilon))
    if run.declared_total is not None and counts.part is not None:
        raise PrivacyError("a part of a split has no public total: a record that changes may move to another part")
    if counts.data in mechanism.declared:
        raise PrivacyError(f"what is declared public as {counts.data!r} has the name of the confidential data")
    threads = engine.threads_or_all(threads)
    paid = charge(run, ledger, source, data=counts.data, assumes=counts.assumes, part=counts.part)
    with paid.streams() as streams:
        cells, values, measurements, chosen = draw(run, counts, streams, threads)
    words = MappingProxyType({**recipe_words(run), **chosen})
    return Release(run.domain, cells, values, measurements, paid.guarantee, words, paid.provenance, paid.receipt)


def checked(mechanism: object, ledger: object, source: Source | None) -> Source:
    """Refuse what is no recipe, no ledger or no source of randomness; the source, `secure()` where none was named."""
    if not isinstance(mechanism, Mechanism):
        raise PrivacyError(f"release() takes a recipe such as haar_topdown(); known: {', '.join(RECIPES)}")
    if ledger is not None and not isinstance(ledger, Ledger):
        raise PrivacyError("release() is charged to one Ledger (see Ledger.open), or to none: write ledger=None")
    source = secure() if source is None else source
    if type(source) is not Source:
        raise PrivacyError("source must be secure() or, in a test, seeded(n)")
    return source


@dataclass(frozen=True, eq=False)
class Paid:
    """A release that is paid for and not yet drawn: what it will claim, and where its one release key comes from."""

    guarantee: Guarantee
    provenance: Mapping[str, Any]
    receipt: Receipt | None
    source: Source
    recipe: str

    @contextmanager
    def streams(self) -> Iterator[Streams]:
        """The keystreams under a fresh release key. If the block fails the ledger notes it; nothing is refunded."""
        try:
            yield Streams(self.source.release_key(), self.recipe)
        except BaseException:
            if self.receipt is not None:
                with suppress(KasuriError):  # a note for the books; the first error is the one to tell
                    self.receipt.abandon()
            raise


def charge(
    run: Run, ledger: Ledger | None, source: Source, *, data: str | None, assumes: tuple[str, ...], part: Part | None
) -> Paid:
    """Charge `ledger` for `run`, durably, before any key is made."""
    mechanism, guarantee = run.mechanism, run.guarantee.assuming(*assumes)
    plan = mechanism.plan(run.domain, guarantee.unit, guarantee.epsilon)
    provenance: dict[str, Any] = {
        "release_id": secrets.token_hex(16),
        "software": f"kasuri {__version__}",
        "source": source.words(),
        "secure": source.secure,
        "data": data,
        "plan": plan,
        "ledger": None,
    }
    receipt = None
    if ledger is None:
        guarantee = guarantee.assuming(NO_LEDGER)
    else:
        receipt = ledger.reserve(guarantee, data=data, recipe=mechanism.name, plan=plan, part=part)
        provenance["ledger"] = receipt.reference()
    return Paid(guarantee, MappingProxyType(provenance), receipt, source, mechanism.name)


Drawn = tuple[NDArray[np.int64], NDArray[Any], Measurements | None, dict[str, Any]]
"""Cells, values, measurements, and words about what noisy numbers chose."""


def draw(run: Run, counts: Counts, streams: Streams, threads: int) -> Drawn:
    """transform, noise, refine; the cells rising and the values not 0."""
    parts = run.mechanism.transform, run.mechanism.noise, run.mechanism.refine, run.descent
    measurements: Measurements | None = None
    words: dict[str, Any] = {}
    if parts in _SPARSE:
        cells, values, measurements, words = _draw_sparse(run, counts, streams, threads)
    elif parts in _DENSE:
        cells, values = _DENSE[parts](run, counts, streams, threads)
    else:
        known = (f"({', '.join(own)})" for own in (*_SPARSE, *_DENSE))
        raise unknown(PrivacyError, "what is to be drawn", ", ".join(parts), known)
    keep = values != 0
    if not keep.all():
        cells, values = cells[keep], values[keep]
    return cells, values, measurements, words


def _draw_sparse(run: Run, counts: Counts, streams: Streams, threads: int) -> Drawn:
    from kasuri._kernels.sort import join_sorted

    tree = run.trees[0]
    tail_cells, tail_leaves = tree.shared_tail
    keys, values = tree.keys(counts.cells), counts.values
    if tail_cells < run.domain.size:
        skip = tail_leaves.bit_length() - 1 if tree.binary else 0
        keys, values = join_sorted([(keys, values)], (tree.leaves - 1).bit_length(), skip)
    words: dict[str, Any] = {}
    if run.mechanism.transform == "nominal":
        parts = [engine.FanDescent(tree, run.scale).run(keys, values, streams)]
        measurements = None
    elif run.mechanism.transform == "counts":
        out_keys, out_values, measurements, words = _count_tree(run, keys, values, streams, threads)
        parts = [(out_keys, out_values)]
    elif run.mechanism.transform == "sum_difference" and run.descent in ("plain", "jump"):
        plain = run.descent == "plain"
        descent = engine.Descent(tree, run.scale, jumps=not plain)
        parts, measurements = descent.run(keys, values, streams, threads, record=plain)
    else:
        raise unknown(PrivacyError, "the transform", run.mechanism.transform, ("sum_difference", "nominal", "counts"))
    del keys, values
    for i, (out_keys, out_values) in enumerate(parts):
        parts[i] = tree.cells(out_keys), out_values
    bits, runs = (run.domain.size - 1).bit_length(), tree.rising_cells
    skip = bits if runs == run.domain.size else (runs & -runs).bit_length() - 1  # cells >> skip never mixes two runs
    return *join_sorted(parts, bits, skip), measurements, words


def _count_tree(
    run: Run, keys: NDArray[np.int64], values: NDArray[np.int64], streams: Streams, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Measurements, dict[str, Any]]:
    """Measure (the pilot first, where there is one), choose, visit; then everything sees noisy counts only."""
    tree, cuts = run.trees[0], run.cuts
    refine: str = run.mechanism.refine  # "chosen" until the choice is made
    known, words = None, {}
    if run.pilot is not None:
        depth, share = run.pilot
        known = measure_whole(tree, depth, run.scale / share, keys, values, streams)
    if run.choices:
        # a key of its own: what chooses can open no stream of the release
        chosen = choose(run, known, Streams(streams.block_key("simulation", 0, 0), "simulation"))
        cuts, refine, words = run.choices[chosen.preset], chosen.refine, chosen.words()
    visited = run.visit(cuts, refine).run(keys, values, streams, threads, known)
    del keys, values
    out_keys, out_values = refined(run, visited, refine)
    levels = visited.levels
    depths = np.concatenate([np.full(level.y.size, cut) for cut, level in zip(visited.cuts, levels, strict=True)])
    prefix, y = (np.concatenate([getattr(level, name) for level in levels]) for name in ("prefix", "y"))
    scales = dict(zip(visited.cuts, visited.scales, strict=True))
    words |= {"shares": {str(depth): decimal(share) for depth, share in cuts}}
    return out_keys, out_values, Measurements(depths, prefix, y, scales), words


def _noise(run: Run, streams: Streams, size: int, threads: int) -> NDArray[Any]:
    """One noise value of scale `run.scale` per coefficient of weight 1."""
    if run.mechanism.noise == "float Laplace":
        return engine.dense_float_noise(float(run.scale), streams, size)
    if run.mechanism.noise != "discrete Laplace":
        raise unknown(PrivacyError, "the noise", run.mechanism.noise, ("discrete Laplace", "float Laplace"))
    return engine.dense_noise(discrete_laplace(run.scale), streams, size, threads)


def _draw_cells(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    noisy = _noise(run, streams, run.domain.size, threads)  # the identity transform: cells are coefficients
    noisy[counts.cells] += counts.values
    cells = np.flatnonzero(run.domain.possible_dense().ravel())
    return cells, noisy[cells]


def _draw_axes(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    parts = transform.haar_nd(run.trees)
    shape = run.domain.shape
    padded = np.zeros(tuple(tree.leaves for tree in run.trees), dtype=np.int64)
    padded[run.domain.unravel(counts.cells)] = counts.values
    coefficients = parts.forward(padded.ravel())
    coefficients += _noise(run, streams, coefficients.size, threads)
    dense = parts.inverse(coefficients).reshape(padded.shape)[tuple(slice(0, size) for size in shape)].ravel()
    cells = np.flatnonzero(run.domain.possible_dense().ravel())
    return cells, dense[cells]


def _draw_tree(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    """The dense composition refine(transform(counts) + noise), word for word: Privelet, T1, and the paper's floats."""
    mechanism, tree = run.mechanism, run.trees[0]
    if mechanism.transform not in ("haar", "sum_difference"):
        raise unknown(PrivacyError, "the transform", mechanism.transform, ("haar", "sum_difference"))
    parts = transform.haar(tree) if mechanism.transform == "haar" else transform.sum_difference(tree)
    possible = tree.possible_leaves()
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    leaves[tree.keys(counts.cells)] = counts.values
    coefficients = parts.forward(leaves)
    coefficients += parts.weights * _noise(run, streams, coefficients.size, threads)
    if mechanism.refine == "inverse":
        values: NDArray[Any] = parts.inverse(coefficients)
    elif mechanism.refine != "topdown":
        raise unknown(PrivacyError, "the refinement", mechanism.refine, ("inverse", "topdown"))
    elif mechanism.transform == "haar":
        values = topdown_float(coefficients, transform.levels(possible))
    else:
        values = topdown(coefficients, transform.levels(possible), engine.dense_coins(streams, coefficients.size))
    keys = np.flatnonzero(possible)
    cells = tree.cells(keys)
    ranked = np.argsort(cells)
    return cells[ranked], values[keys[ranked]]


def _draw_projected(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    """Noisy cells and a noisy or declared total, shaped by one of the rules of `project`."""
    mechanism = run.mechanism
    cells, noisy = _draw_cells(run, counts, streams, threads)
    if run.declared_total is None:
        assert run.total_scale is not None
        noise = int(discrete_laplace(run.total_scale).draw(streams.open("total"), 1)[0])
        total = max(int(counts.values.sum()) + noise, 0)
    else:
        total = run.declared_total
    total = min(total, LARGEST)
    tally = Tally.of(noisy)
    rule: Any = mechanism.option("rule")
    wanted = mechanism.option("parameter")
    tuned = wanted == "auto"
    parameter = _tuned(run, rule, cells, noisy, tally, total, streams, threads) if tuned else Fraction(wanted)
    at, values = shape(tally, total, rule, parameter).apply(noisy)
    return cells[at], values


def _tuned(
    run: Run,
    rule: Rule,
    cells: NDArray[np.int64],
    noisy: NDArray[np.int64],
    tally: Tally,
    total: int,
    streams: Streams,
    threads: int,
) -> Fraction:
    """The parameter that does best on simulated noise over the projected noisy table, or over a declared public one."""
    sampler = discrete_laplace(run.scale)
    replicates = max(1, min(16, (1 << 17) // noisy.size))
    draws = [
        partial(engine.dense_noise, sampler, streams, noisy.size, threads, "bootstrap", i) for i in range(replicates)
    ]
    if run.mechanism.tuning is None:
        base = shape(tally, total, "neg l2", Fraction(1)).apply(noisy)
        if rule != "neg l2":  # a lasso is judged by the whole map it should leave: start from the sharper projection
            base = shape(tally, total, "neg l2", tune(base, draws, total, "neg l2", GAMMAS)).apply(noisy)
    else:
        known = np.rint(run.mechanism.tuning.on(cells)).astype(np.int64)
        base = np.flatnonzero(known), known[known > 0]
        total = int(known.sum())
    if rule == "neg l2":
        return tune(base, draws, total, rule, GAMMAS)
    return tune(base, draws, total, rule, [Fraction(round(4 * run.scale * t), 4) for t in THRESHOLDS])


def _draw_threshold(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    """Noisy cells of at least `run.threshold`. Empty cells pass one by one with the same small chance, so only those
    that do are drawn: the runs between them, and by how much each passes (docs/proofs/sparse.md)."""
    least = run.threshold
    assert least is not None
    sampler = discrete_laplace(run.scale)
    own = counts.values + sampler.draw(streams.open("noise"), counts.cells.size)
    keep = own >= least
    found = _passing(run, least, streams)
    excess = sampler.draw(streams.open("excess"), found.size)
    values = least + np.where(excess >= 0, excess, -excess - 1)  # P(N >= least + j | N >= least) = a^j
    at = np.minimum(np.searchsorted(counts.cells, found), max(counts.cells.size - 1, 0))
    empty = counts.cells[at] != found if counts.cells.size else np.ones(found.size, dtype=bool)
    empty &= run.domain.possible(found)
    cells = np.concatenate([counts.cells[keep], found[empty]])
    ranked = np.argsort(cells, kind="stable")
    return cells[ranked], np.concatenate([own[keep], values[empty]])[ranked]


def _passing(run: Run, least: int, streams: Streams) -> NDArray[np.int64]:
    """Every cell by itself with probability P(N >= least), in order: exact runs of cells that do not pass."""
    size = run.domain.size
    sampler = runs_below(run.scale, least, size)
    stream = streams.open("gap")
    chance = passes(run.scale, least)  # how many to draw at a time; decides nothing
    found: list[NDArray[np.int64]] = []
    at = -1
    while at < size - 1:
        left = size - 1 - at
        piece = max(1, min(1 << 14, int(left * chance) + 1, (1 << 62) // (left + 1)))
        steps = at + np.cumsum(np.minimum(np.abs(sampler.draw(stream, piece)), left) + 1)
        found.append(steps[steps < size])
        at = min(int(steps[-1]), size)
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _draw_matrix(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    """A measured matrix of whole numbers: least squares, or the nearest non-negative table."""
    strategy = run.strategy
    assert strategy is not None
    dense = np.zeros(run.domain.size, dtype=np.int64)
    dense[counts.cells] = counts.values
    known: NDArray[Any] = dense[strategy.cells]
    rows: NDArray[Any] = strategy.rows
    if int(np.abs(rows).max()) * int(counts.values.sum()) >= 1 << 61:  # beyond 64 bits: whole numbers of any size
        rows, known = rows.astype(object), known.astype(object)
    noisy = (rows @ known + _noise(run, streams, len(rows), threads)).astype(np.float64)
    if run.mechanism.refine == "linear program":
        return strategy.cells, nonnegative_fit(strategy.rows, noisy)
    if run.mechanism.refine != "inverse":
        raise unknown(PrivacyError, "the refinement", run.mechanism.refine, ("inverse", "linear program"))
    return strategy.cells, np.linalg.lstsq(strategy.rows.astype(np.float64), noisy)[0]


def _draw_hierarchy(run: Run, counts: Counts, streams: Streams, threads: int) -> tuple[NDArray[np.int64], Any]:
    """Noisy counts of every possible node of every measured level, made consistent by least squares."""
    tree, visit = run.trees[0], run.visit()
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    leaves[tree.keys(counts.cells)] = counts.values
    possible = tree.possible_leaves()
    levels: list[tuple[NDArray[Any], NDArray[np.int64]]] = []
    nodes, before = np.zeros(0, dtype=np.int64), tree.leaves
    for depth, scale in zip(visit.cuts, visit.scales, strict=True):
        stride = tree.stride(depth)
        above, nodes = nodes, np.flatnonzero(possible.reshape(-1, stride).any(axis=1))
        if levels:
            wide = before // stride
            levels[-1] = levels[-1][0], np.searchsorted(nodes, np.append(above, above[-1] + 1) * wide)
        noise = engine.dense_noise(discrete_laplace(scale), streams, nodes.size, threads, "noise", depth)
        levels.append((leaves.reshape(-1, stride).sum(axis=1)[nodes] + noise, np.zeros(nodes.size + 1, dtype=np.int64)))
        before = stride
    values = consistency(levels, variances(visit.scales))
    cells = tree.cells(nodes)
    ranked = np.argsort(cells)
    return cells[ranked], values[ranked]


_Draw = Callable[[Run, Counts, Streams, int], tuple[NDArray[np.int64], Any]]
_EXACT, _FLOAT = "discrete Laplace", "float Laplace"
_DENSE: dict[tuple[str, str, str, str], _Draw] = {
    ("identity", _EXACT, "none", "none"): _draw_cells,
    ("identity", _FLOAT, "none", "none"): _draw_cells,
    ("identity", _EXACT, "simplex", "none"): _draw_projected,
    ("identity", _EXACT, "nonneg lasso", "none"): _draw_projected,
    ("identity", _EXACT, "lasso", "none"): _draw_projected,
    ("identity", _EXACT, "threshold", "jump"): _draw_threshold,
    ("haar_nd", _EXACT, "inverse", "none"): _draw_axes,
    ("sum_difference", _EXACT, "inverse", "none"): _draw_tree,
    ("sum_difference", _EXACT, "topdown", "dense"): _draw_tree,
    ("haar", _FLOAT, "topdown", "dense"): _draw_tree,
    ("counts", _EXACT, "consistency", "dense"): _draw_hierarchy,
    ("matrix", _EXACT, "inverse", "none"): _draw_matrix,
    ("fourier", _EXACT, "linear program", "none"): _draw_matrix,
}
"""Who draws which transform, noise, refinement and descent: what is in neither list is not drawn at all."""
_SPARSE = (
    ("sum_difference", _EXACT, "topdown", "plain"),
    ("sum_difference", _EXACT, "topdown", "jump"),
    ("nominal", _EXACT, "topdown", "plain"),
    ("counts", _EXACT, "least squares", "plain"),
    ("counts", _EXACT, "bayes", "plain"),
    ("counts", _EXACT, "chosen", "plain"),
)
"""Those drawn node by node along their tree."""
