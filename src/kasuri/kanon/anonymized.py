"""Anonymized: a k-anonymised table, ready to write out. It carries no privacy guarantee unless `guarantee` says so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.arrays import Int
from kasuri.errors import DomainError, PrivacyError, raise_faults
from kasuri.files import whole
from kasuri.kanon.classes import Measures, Tuples, grouped, measured
from kasuri.kanon.recoding import Coded, Cut, Recoding
from kasuri.names import cells
from kasuri.privacy import Guarantee

NO_GUARANTEE = (
    "k-anonymity is a property of this table, not of how it was made: it is not differential privacy, "
    "and nothing bounds what someone with other knowledge learns from it"
)
UNMETERED = "no ledger: nothing bounds what other releases of the same data spend"


@dataclass(frozen=True, eq=False, repr=False)
class Anonymized:
    """A generalised table, its rows ordered by class, so that the order of the original rows does not show.

    Per distinct published tuple: `codes` (per attribute, into `values`), `sensitive` (Arrow, per sensitive column) and
    `weights` (rows). `of` numbers the class of each. `cut` is the node that stands for each leaf (None where the
    recoding is local). `ncp` is the sum over all rows and attributes of leaves under the value / leaves of the tree
    [Horigome2020, sec. 2.4], a suppressed row losing 1 per attribute.
    """

    spec: Recoding
    method: str
    values: tuple[tuple[str, ...], ...]
    codes: tuple[NDArray[Any], ...]
    sensitive: tuple[Any, ...]
    weights: Int
    of: Int
    measures: Measures
    ncp: float
    cut: Cut | None = None
    guarantee: Guarantee | None = None
    seeded: bool = False

    def __repr__(self) -> str:
        return f"Anonymized({self.method}, k={self.k}, classes={self.measures.classes})"

    @property
    def k(self) -> int:
        """The smallest class."""
        return self.measures.k

    @property
    def rows(self) -> int:
        return self.measures.rows

    @property
    def suppressed(self) -> int | None:
        return self.measures.suppressed

    @property
    def ncp_share(self) -> float:
        """ncp per row and attribute: 1 where everything is written as the root."""
        return self.ncp / max((self.rows + (self.suppressed or 0)) * len(self.spec.attributes), 1)

    def table(self) -> Any:
        """The release as an Arrow table: one line per row, columns dictionary-encoded."""
        import pyarrow as pa

        which = np.repeat(np.arange(self.weights.size), self.weights)
        columns = {
            tree.name: pa.DictionaryArray.from_arrays(pa.array(code[which].astype(np.int32)), pa.array(values))
            for tree, code, values in zip(self.spec.attributes, self.codes, self.values, strict=True)
        }
        columns |= {
            column.name: values.take(pa.array(which))
            for column, values in zip(self.spec.sensitive, self.sensitive, strict=False)
        }
        return pa.table(columns)

    def classes(self) -> Any:
        """One line per class: its values and its `rows`."""
        import pyarrow as pa

        first = np.unique(self.of, return_index=True)[1]
        columns: dict[str, Any] = {
            tree.name: pa.array([values[i] for i in code[first].tolist()])
            for tree, code, values in zip(self.spec.attributes, self.codes, self.values, strict=True)
        }
        return pa.table({**columns, "rows": pa.array(self.measures.sizes)})

    def written(self) -> dict[str, list[str]]:
        """The labels written for each attribute, in the order of its tree."""
        return {
            tree.name: [values[i] for i in np.unique(code).tolist()]
            for tree, code, values in zip(self.spec.attributes, self.codes, self.values, strict=True)
        }

    def save(self, path: str | Path) -> None:
        """Write the table as .parquet or .csv; a seeded randomised release is refused."""
        if self.seeded:
            raise PrivacyError("this release was drawn from a seed, for tests only; make it with source=secure()")
        path = checked_path(path)
        if path.suffix.lower() == ".csv":
            from pyarrow import csv

            with whole(path) as part:
                csv.write_csv(cells(self.table()), part)
        else:
            from pyarrow import parquet

            with whole(path) as part:
                parquet.write_table(self.table(), part)

    def words(self) -> str:
        """What this release promises, in one sentence."""
        return NO_GUARANTEE if self.guarantee is None else self.guarantee.words()

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            **self.measures.to_json(),
            "ncp": self.ncp,
            "ncp_share": self.ncp_share,
            "written": self.written(),
            "guarantee": None if self.guarantee is None else self.guarantee.to_json(),
            "words": self.words(),
        }


def checked_path(path: str | Path) -> Path:
    """Where a release may be written; refused unless it is a .csv or .parquet file in a folder that exists."""
    path = Path(path)
    faults = [] if path.suffix.lower() in (".csv", ".parquet") else [f"{path}: a .csv or .parquet file is needed"]
    if not path.parent.is_dir():
        faults.append(f"{path}: there is no folder {path.parent}")
    elif path.is_dir():
        faults.append(f"{path}: is a folder")
    raise_faults(DomainError, faults)
    return path


def by_cut(coded: Coded, tuples: Tuples, keep: NDArray[np.bool_], cut: Cut, method: str) -> Anonymized:
    """The release that writes each leaf as its node of the cut; tuples outside `keep` are suppressed."""
    trees = coded.spec.attributes
    codes = tuple(node.astype(np.int32)[leaf] for node, leaf in zip(cut, tuples.leaves, strict=True))
    shares = tuple((tree.high - tree.low) / tree.leaves for tree in trees)
    return assemble(coded, tuples, keep, tuple(tree.labels for tree in trees), codes, shares, method, cut)


def assemble(
    coded: Coded,
    tuples: Tuples,
    keep: NDArray[np.bool_],
    values: tuple[tuple[str, ...], ...],
    codes: tuple[NDArray[Any], ...],
    shares: tuple[NDArray[np.float64], ...],
    method: str,
    cut: Cut | None = None,
) -> Anonymized:
    """Merge tuples that are written alike, order them by what is written, and measure the result.

    Per attribute, `codes` are the tuples' values as places in `values`, whose losses are `shares`.
    """
    import pyarrow as pa

    from kasuri._kernels.kanon import class_sums

    spec = coded.spec
    kept: Any = slice(None) if keep.all() else np.flatnonzero(keep)
    weights = tuples.weights[kept]
    suppressed = tuples.rows - int(weights.sum())
    written = [code[kept] for code in codes]
    secret = [code[kept] for code in tuples.sensitive]
    lost = [float(share @ np.bincount(code, weights, share.size)) for share, code in zip(shares, written, strict=True)]
    ncp = sum(lost) + suppressed * len(spec.attributes)
    sizes = [len(labels) for labels in values]
    alike, one = grouped([*written, *secret], [*sizes, *coded.sensitive_sizes])
    total = class_sums(alike, weights, one.size)
    shown = tuple(code[one] for code in written)
    number = grouped(shown, sizes)[0]
    hidden = tuple(code[one] for code in secret)
    measures = measured(number, total, hidden, coded.sensitive_sizes, spec.sensitive, suppressed)
    rows = pa.array(tuples.first[kept][one])
    sensitive = tuple(column.take(rows) for column in coded.sensitive_values)
    return Anonymized(spec, method, values, shown, sensitive, total, number, measures, ncp, cut)
