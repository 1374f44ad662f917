"""The named recipes and `release()`: the one place where Counts meets noise.

A release is refine(transform(counts) + noise): only counts is secret, only noise is random, and refine sees neither.
The meaning of a recipe name never changes; a changed algorithm gets a new name.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from kasuri import __version__, engine, order, transform
from kasuri.accounting import Losses, Series, generic
from kasuri.errors import DomainError, KasuriError, PrivacyError, raise_faults
from kasuri.ledger import Ledger
from kasuri.noise import discrete_laplace
from kasuri.order import Order
from kasuri.privacy import Guarantee, decimal, exact
from kasuri.published import NO_LEDGER, Measurements, Release
from kasuri.refine import topdown, topdown_float
from kasuri.rng import Source, Streams, secure
from kasuri.schema import Domain, Ordered, Unit
from kasuri.table import Counts

DENSE_CELLS = 1 << 26
"""Most cells (padding included) a dense recipe takes."""
MEASURED_CELLS = 1 << 24
"""haar_topdown draws every node, and so publishes its measurements, up to this many leaves; above it jumps."""

MAX_SCALE = 1 << 55
"""Largest noise scale: a value beyond 2^61 then has probability below 2 e^-64."""

KEYSTREAM = "the keystream (AES-256-CTR under BLAKE2b keys) is as good as ideal random bits"
IDEALISED = "idealised numerics: floating-point noise, for reproducing papers only"


_COMBINATIONS = {
    ("identity", "float Laplace", "none"): ("none",),
    ("identity", "discrete Laplace", "none"): ("none",),
    ("haar_nd", "discrete Laplace", "inverse"): ("none",),
    ("sum_difference", "discrete Laplace", "inverse"): ("none",),
    ("sum_difference", "discrete Laplace", "topdown"): ("auto", "dense", "plain", "jump"),
    ("haar", "float Laplace", "topdown"): ("dense",),
    ("nominal", "discrete Laplace", "topdown"): ("plain",),
}
"""The parts that were proved together, with the descents each allows."""


@dataclass(frozen=True)
class Mechanism:
    """A recipe: no data, no epsilon. Its guarantee is computed from domain, unit and epsilon alone.

    `transform`, `noise` and `refine` name the parts; `order` the tree over the cells; `descent` how the refinement
    walks it; `basis` the proof.
    """

    name: str
    transform: Literal["identity", "sum_difference", "haar", "haar_nd", "nominal"]
    noise: Literal["discrete Laplace", "float Laplace"]
    refine: Literal["none", "inverse", "topdown"]
    basis: str
    order: str = "none"
    interleave: tuple[str, ...] = ()
    descent: Literal["none", "auto", "dense", "plain", "jump"] = "none"

    def __post_init__(self) -> None:
        parts = (self.transform, self.noise, self.refine)
        if parts not in _COMBINATIONS or self.descent not in _COMBINATIONS[parts]:
            raise PrivacyError("no proof covers this combination of parts; make a Mechanism by its recipe")

    def guarantee(self, domain: Domain, unit: Unit, epsilon: object) -> Guarantee:
        """The claim a release of this recipe makes, before any data is touched."""
        return resolve(self, domain, unit, epsilon).guarantee

    def scale(self, domain: Domain, unit: Unit, epsilon: object) -> Fraction:
        """Noise scale of a coefficient of weight 1: c * cost / epsilon."""
        return resolve(self, domain, unit, epsilon).scale

    def losses(self, domain: Domain, unit: Unit, epsilon: object) -> Losses:
        """The privacy-loss pair of one release: independent parts and the epsilon of each (docs/proofs/composition.md).

        Where one unit adds a single count (add-remove) and every coefficient has the same exact noise, it moves at
        most `cost` numbers by 1, and each of them alone is (epsilon / cost)-DP. Anything else, and every recipe that
        does not stand here by name: the generic pair.
        """
        run = resolve(self, domain, unit, epsilon)
        known = self.name in ("geometric", "privelet", "haar_topdown")
        equal = self.transform in ("identity", "sum_difference", "haar_nd") and self.noise == "discrete Laplace"
        if not known or not equal or unit.change != "add-remove" or unit.most != 1:
            return generic(run.guarantee.epsilon)
        return ((1 / run.scale, int(run.scale * run.guarantee.epsilon)),)

    def plan(self, domain: Domain, unit: Unit, epsilon: object) -> str:
        """Fingerprint of everything public about a release: recipe, domain, unit, epsilon. Nothing of the data."""
        public = {
            "recipe": asdict(self),
            "domain": domain.to_json(),
            "unit": unit.to_json(),
            "epsilon": decimal(exact(epsilon)),
        }
        text = json.dumps(public, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def series(self, domain: Domain, unit: Unit, epsilon: object, releases: int) -> Series:
        """`releases` equal releases, to be declared when a ledger is opened with accounting="pld"."""
        losses = self.losses(domain, unit, epsilon)
        return Series(self.name, self.plan(domain, unit, epsilon), exact(epsilon), losses, releases)


@dataclass(frozen=True, eq=False)
class Run:
    """Everything public about one run, made before the ledger is charged. `trees` is one tree over all cells, or one
    per axis (haar_nd), or none (identity); `descent` is what "auto" came to."""

    mechanism: Mechanism
    domain: Domain
    scale: Fraction
    guarantee: Guarantee
    trees: tuple[Order, ...]
    descent: str


def laplace() -> Mechanism:
    """Every cell plus floating-point Laplace noise of scale c/epsilon: the papers' baseline [Dwork2006].

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP in exact arithmetic. Proof: docs/proofs/laplace.md. Public: domain, mask.
    Assumes: idealised numerics (floating-point noise can leak; use `geometric` for real data).

    Cost: O(n). References: [Dwork2006], [Terada2015, eq. 7].
    """
    return Mechanism("laplace", "identity", "float Laplace", "none", "docs/proofs/laplace.md")


def geometric() -> Mechanism:
    """Every cell plus exact discrete Laplace noise of scale c/epsilon (the geometric mechanism); may be negative.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c (add-remove), 2c (replace), c = counts a unit adds.
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/geometric.md. Public: domain, mask. Assumes: a good keystream.

    Cost: O(n). References: [Ghosh2012].
    """
    return Mechanism("geometric", "identity", "discrete Laplace", "none", "docs/proofs/geometric.md")


def privelet(order: Literal["1d", "2d", "morton"] = "morton") -> Mechanism:
    """Sum-difference (Haar) coefficients plus exact noise, inverted; no refinement, cells may be negative [Xiao2011].

    order "1d": the cells row by row; "morton": along the Morton curve; "2d": standard decomposition, axis by axis.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the cost of the tree (1 + k add-remove, 2k
    replace for 2^k cells); "2d": c times the product over axes (add-remove).
    Guarantee: epsilon-DP, exactly. Proof: docs/proofs/privelet.md. Public: domain, mask. Assumes: a good keystream.

    Cost: O(n). References: [Xiao2011], [Terada2015, sec. 5.3].
    """
    if order not in ("1d", "2d", "morton"):
        raise DomainError(f'privelet: order {order!r} is not known; use "1d", "2d" or "morton"')
    kind: Literal["haar_nd", "sum_difference"] = "haar_nd" if order == "2d" else "sum_difference"
    return Mechanism("privelet", kind, "discrete Laplace", "inverse", "docs/proofs/privelet.md", order=order)


def haar_topdown(
    order: Literal["morton", "1d"] = "morton",
    transform: Literal["sum_difference", "haar", "nominal"] = "sum_difference",
    *,
    interleave: tuple[str, ...] = (),
    descent: Literal["auto", "dense", "plain", "jump"] = "auto",
) -> Mechanism:
    """Terada et al.: noisy sums and differences along a tree, refined from the top to non-negative numbers that add up.

    transform "sum_difference": exact integers. "haar": the paper's floating-point form, dense, for reproduction.
    "nominal": a nominal axis is split along its public tree, any fan-outs. `interleave` mixes the bits of the named
    axes. descent "plain" draws every node of positive refined sum and publishes its measurements; "jump" passes whole
    levels at once in empty parts (cost follows the output, not the tree's height) and publishes none; "dense" is T1,
    every coefficient; "auto" is plain up to 2^24 leaves, jump above.

    Privacy
    -------
    Neighbours: tables that differ by one unit. Sensitivity: c times the most measured coefficients on a possible
    cell's path, root included (1 + k for a full binary tree; replace: 2k for k >= 1, 1 for one cell).
    Guarantee: epsilon-DP, exactly ("haar": with idealised numerics). Proof: docs/proofs/haar_topdown.md.
    Public: domain, mask, order. Assumes: a good keystream; run time depends on the data (SECURITY.md).

    Cost: O(m + outputs) with jumps, O(m + outputs * k) plain, O(n) dense; m records, n cells, k levels.
    References: [Terada2015, sec. 4.2; eq. 25, not 38-39], [JP6310345B2, eq. 33-36].
    """
    faults = []
    if order not in ("morton", "1d"):
        faults.append(f'haar_topdown: order {order!r} is not known; use "morton" or "1d"')
    if transform not in ("sum_difference", "haar", "nominal"):
        faults.append(f'haar_topdown: transform {transform!r} is not known; use "sum_difference", "haar" or "nominal"')
    if descent not in ("auto", "dense", "plain", "jump"):
        faults.append(f'haar_topdown: descent {descent!r} is not known; use "auto", "dense", "plain" or "jump"')
    if transform != "sum_difference" and descent != "auto":
        faults.append(f'haar_topdown: descent is a choice of "sum_difference" only, not of {transform!r}')
    if (order == "1d" or transform == "nominal") and interleave:
        faults.append("haar_topdown: interleave needs order='morton' and a binary transform")
    if transform == "nominal" and order == "1d":
        faults.append("haar_topdown: the nominal transform follows the axes, not order='1d'")
    raise_faults(DomainError, faults)
    return Mechanism(
        "haar_topdown",
        transform,
        "float Laplace" if transform == "haar" else "discrete Laplace",
        "topdown",
        "docs/proofs/haar_topdown.md",
        order=order,
        interleave=tuple(interleave),
        descent="dense" if transform == "haar" else "plain" if transform == "nominal" else descent,
    )


RECIPES: dict[str, Callable[..., Mechanism]] = {
    "geometric": geometric,
    "haar_topdown": haar_topdown,
    "laplace": laplace,
    "privelet": privelet,
}
"""Every recipe by name; the contract tests run over all of them."""


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
    if not isinstance(mechanism, Mechanism):
        raise PrivacyError(f"release() takes a recipe such as haar_topdown(); known: {', '.join(RECIPES)}")
    if ledger is not None and not isinstance(ledger, Ledger):
        raise PrivacyError("release() is charged to one Ledger (see Ledger.open), or to none: write ledger=None")
    run = resolve(mechanism, counts.domain, counts.unit, epsilon)
    guarantee = run.guarantee.assuming(*counts.assumes)
    plan = mechanism.plan(counts.domain, counts.unit, epsilon)
    source = secure() if source is None else source
    if type(source) is not Source:
        raise PrivacyError("source must be secure() or, in a test, seeded(n)")
    threads = engine.threads_or_all(threads)
    provenance: dict[str, Any] = {
        "release_id": secrets.token_hex(16),
        "software": f"kasuri {__version__}",
        "source": source.words(),
        "secure": source.secure,
        "data": counts.data,
        "plan": plan,
        "ledger": None,
    }
    receipt = None
    if ledger is None:
        guarantee = guarantee.assuming(NO_LEDGER)
    else:
        receipt = ledger.reserve(guarantee, data=counts.data, recipe=mechanism.name, plan=plan, part=counts.part)
        provenance["ledger"] = receipt.reference()
    try:
        streams = Streams(source.release_key(), mechanism.name)
        cells, values, measurements = _draw(run, counts, streams, threads)
    except BaseException:
        if receipt is not None:
            with suppress(KasuriError):  # a note for the books; the first error is the one to tell
                receipt.abandon()
        raise
    words = MappingProxyType(_recipe_words(run)), MappingProxyType(provenance)
    return Release(counts.domain, cells, values, measurements, guarantee, *words, receipt)


def _recipe_words(run: Run) -> dict[str, Any]:
    mechanism = run.mechanism
    return {
        "name": mechanism.name,
        "transform": mechanism.transform,
        "noise": mechanism.noise,
        "scale": decimal(run.scale),
        "refine": mechanism.refine,
        "order": run.trees[0].name if len(run.trees) == 1 else mechanism.order,
        "interleave": list(mechanism.interleave),
        "descent": run.descent,
    }


def resolve(mechanism: Mechanism, domain: Domain, unit: Unit, epsilon: object) -> Run:
    """Resolve a recipe on a domain: trees, scale, guarantee. Sees no data; refuses before anything is charged."""
    if not isinstance(unit, Unit):
        raise PrivacyError("a unit of protection is needed: unit=Unit(id=..., change=..., max_cells=...)")
    loss = exact(epsilon)
    trees = _trees(mechanism, domain)
    descent = mechanism.descent
    if descent == "auto":
        descent = "plain" if trees[0].leaves <= MEASURED_CELLS else "jump"
    leaves = math.prod(tree.leaves for tree in trees) if trees else domain.size
    if descent in ("none", "dense") and leaves > DENSE_CELLS:
        raise DomainError(
            f"{mechanism.name} writes every one of {leaves} cells (padding included); it takes at most {DENSE_CELLS}. "
            "haar_topdown() follows the non-zero cells instead"
        )
    if mechanism.transform == "identity":
        cost = transform.identity_cost(domain.size, unit.change)
    elif mechanism.transform == "haar_nd":
        cost = transform.haar_nd_cost(trees, unit.change)
    else:
        cost = trees[0].cost(unit.change)
    public = ("domain", "mask") if domain.mask else ("domain",)
    guarantee = Guarantee("central", loss, Fraction(0), unit, public, (), mechanism.basis)
    guarantee = guarantee.assuming(IDEALISED if mechanism.noise == "float Laplace" else KEYSTREAM)
    scale = unit.most * cost / loss
    if scale > MAX_SCALE:
        raise PrivacyError("epsilon is too small: the noise would not fit 64-bit integers (scale above 2^55)")
    return Run(mechanism, domain, scale, guarantee, trees, descent)


def _trees(mechanism: Mechanism, domain: Domain) -> tuple[Order, ...]:
    if mechanism.transform == "identity":
        return ()
    if mechanism.transform == "haar_nd":
        return tuple(order.row_major(Domain.of(Ordered(f"d{i}", size))) for i, size in enumerate(domain.shape))
    if mechanism.transform == "nominal":
        return (order.hierarchy(domain),)
    return (order.row_major(domain) if mechanism.order == "1d" else order.morton(domain, mechanism.interleave),)


Drawn = tuple[NDArray[np.int64], NDArray[Any], Measurements | None]


def _draw(run: Run, counts: Counts, streams: Streams, threads: int) -> Drawn:
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
    from kasuri._kernels.sort import sort_pairs

    tree = run.trees[0]
    tail_cells, tail_leaves = tree.shared_tail
    in_order = tail_cells == run.domain.size
    keys, values = tree.keys(counts.cells), counts.values
    if not in_order:
        skip = tail_leaves.bit_length() - 1 if tree.binary else 0
        keys, values = sort_pairs(keys, values.copy(), (tree.leaves - 1).bit_length(), skip)
    if run.mechanism.transform == "nominal":
        out_keys, out_values = engine.FanDescent(tree, run.scale).run(keys, values, streams)
        measurements = None
    else:
        plain = run.descent == "plain"
        descent = engine.Descent(tree, run.scale, jumps=not plain)
        out_keys, out_values, measurements = descent.run(keys, values, streams, threads, record=plain)
    del keys, values
    cells = tree.cells(out_keys)
    if not in_order:
        skip = (tail_cells & -tail_cells).bit_length() - 1  # cells >> skip never mixes two tails
        cells, out_values = sort_pairs(cells, out_values, (run.domain.size - 1).bit_length(), skip)
    return cells, out_values, measurements


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
