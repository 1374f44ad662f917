"""release(): the one place where Counts meets noise (and `spark`, which pays and draws alike)."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri import __version__, engine, transform
from kasuri.errors import KasuriError, PrivacyError
from kasuri.ledger import Ledger, Receipt
from kasuri.mechanism import Mechanism, Run, resolve
from kasuri.noise import discrete_laplace, laplace_variance
from kasuri.privacy import Guarantee, decimal
from kasuri.published import NO_LEDGER, Measurements, Release
from kasuri.recipes import RECIPES
from kasuri.refine import least_squares, topdown, topdown_float
from kasuri.rng import Source, Streams, secure
from kasuri.schema import Part
from kasuri.table import Counts


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

    epsilon: an exact decimal such as "0.1". ledger: must be written out; it is charged, durably, before the release
    key is made, and nothing is refunded. None means unmetered, which the guarantee then says. source: `secure()`
    unless a test wants `seeded(n)`. threads: any number gives the same result.
    """
    if not isinstance(counts, Counts):
        raise PrivacyError("release() takes Counts (see count(), Counts.from_dense, Counts.from_coo)")
    source = checked(mechanism, ledger, source)
    run = resolve(mechanism, counts.domain, counts.unit, epsilon)
    threads = engine.threads_or_all(threads)
    paid = charge(run, ledger, source, data=counts.data, assumes=counts.assumes, part=counts.part)
    with paid.streams() as streams:
        cells, values, measurements = draw(run, counts, streams, threads)
    return Release(
        run.domain, cells, values, measurements, paid.guarantee, recipe_words(run), paid.provenance, paid.receipt
    )


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


def recipe_words(run: Run) -> Mapping[str, Any]:
    """The mechanism in words and parameters, as a release carries it."""
    mechanism = run.mechanism
    words = {
        "name": mechanism.name,
        "transform": mechanism.transform,
        "noise": mechanism.noise,
        "scale": decimal(run.scale),
        "refine": mechanism.refine,
        "order": run.trees[0].name if len(run.trees) == 1 else mechanism.order,
        "interleave": list(mechanism.interleave),
        "descent": run.descent,
    } | ({"shares": {str(depth): decimal(share) for depth, share in run.cuts}} if run.cuts else {})
    return MappingProxyType(words)


Drawn = tuple[NDArray[np.int64], NDArray[Any], Measurements | None]


def draw(run: Run, counts: Counts, streams: Streams, threads: int) -> Drawn:
    """transform, noise, refine: (cells, values, measurements), the cells rising and the values not 0."""
    mechanism = run.mechanism
    if run.descent in ("plain", "jump"):
        cells, values, measurements = _draw_sparse(run, counts, streams, threads)
    else:
        measurements = None
        if mechanism.transform == "identity":
            cells, values = _draw_cells(run, counts, streams, threads)
        elif mechanism.transform == "haar_nd":
            cells, values = _draw_axes(run, counts, streams, threads)
        else:
            cells, values = _draw_tree(run, counts, streams, threads)
    keep = values != 0
    return (cells, values, measurements) if keep.all() else (cells[keep], values[keep], measurements)


def _draw_sparse(run: Run, counts: Counts, streams: Streams, threads: int) -> Drawn:
    from kasuri._kernels.sort import join_sorted

    tree = run.trees[0]
    tail_cells, tail_leaves = tree.shared_tail
    keys, values = tree.keys(counts.cells), counts.values
    if tail_cells < run.domain.size:
        skip = tail_leaves.bit_length() - 1 if tree.binary else 0
        keys, values = join_sorted([(keys, values)], (tree.leaves - 1).bit_length(), skip)
    if run.mechanism.transform == "nominal":
        parts = [engine.FanDescent(tree, run.scale).run(keys, values, streams)]
        measurements = None
    elif run.mechanism.transform == "counts":
        out_keys, out_values, measurements = _refined(run, keys, values, streams, threads)
        parts = [(out_keys, out_values)]
    else:
        plain = run.descent == "plain"
        descent = engine.Descent(tree, run.scale, jumps=not plain)
        parts, measurements = descent.run(keys, values, streams, threads, record=plain)
    del keys, values
    for i, (out_keys, out_values) in enumerate(parts):
        parts[i] = tree.cells(out_keys), out_values
    bits, runs = (run.domain.size - 1).bit_length(), tree.rising_cells
    skip = bits if runs == run.domain.size else (runs & -runs).bit_length() - 1  # cells >> skip never mixes two runs
    return *join_sorted(parts, bits, skip), measurements


def _refined(
    run: Run, keys: NDArray[np.int64], values: NDArray[np.int64], streams: Streams, threads: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Measurements]:
    visited = run.visit().run(keys, values, streams, threads)
    leaves, _ = least_squares([(level.y, level.first) for level in visited.levels], variances(visited.scales))
    keep = leaves > 0
    levels = visited.levels
    depth = np.concatenate([np.full(level.y.size, cut) for cut, level in zip(visited.cuts, levels, strict=True)])
    prefix, y = (np.concatenate([getattr(level, name) for level in levels]) for name in ("prefix", "y"))
    scales = dict(zip(visited.cuts, visited.scales, strict=True))
    return levels[-1].prefix[keep], leaves[keep], Measurements(depth, prefix, y, scales)


def variances(scales: tuple[Fraction, ...]) -> list[float]:
    """Noise variance per measured level of a count tree."""
    # below 1/64 there is no noise to speak of, and the variance would leave the range of floats
    return [laplace_variance(max(scale, Fraction(1, 64))) for scale in scales]


def _noise(run: Run, streams: Streams, size: int, threads: int) -> NDArray[Any]:
    """One noise value of scale `run.scale` per coefficient of weight 1."""
    if run.mechanism.noise == "float Laplace":
        return engine.dense_float_noise(float(run.scale), streams, size)
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
    parts = transform.haar(tree) if mechanism.transform == "haar" else transform.sum_difference(tree)
    possible = tree.possible_leaves()
    leaves = np.zeros(tree.leaves, dtype=np.int64)
    leaves[tree.keys(counts.cells)] = counts.values
    coefficients = parts.forward(leaves)
    coefficients += parts.weights * _noise(run, streams, coefficients.size, threads)
    if mechanism.refine == "inverse":
        values: NDArray[Any] = parts.inverse(coefficients)
    elif mechanism.transform == "haar":
        values = topdown_float(coefficients, transform.levels(possible))
    else:
        values = topdown(coefficients, transform.levels(possible), engine.dense_coins(streams, coefficients.size))
    keys = np.flatnonzero(possible)
    cells = tree.cells(keys)
    ranked = np.argsort(cells)
    return cells[ranked], values[keys[ranked]]
