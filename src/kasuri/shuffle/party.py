"""One side of the join: pseudonymise, randomise, shuffle, destroy."""

from __future__ import annotations

import hashlib
import secrets as _secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kasuri.budget.ledger import Ledger, Receipt
from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError, ProtocolError, raise_faults, rows_faults
from kasuri.ingest.sources import RAGGED, Stream, open_stream
from kasuri.ingest.stream import row_by_row
from kasuri.local.randomizer import trusted
from kasuri.noise.rng import Source, secure, seeded
from kasuri.privacy import Guarantee
from kasuri.published.protected import NO_LEDGER
from kasuri.shuffle.columns import Codes, Column, Side
from kasuri.shuffle.files import SHUFFLED, from_arrow, read, to_arrow, write
from kasuri.shuffle.plan import PSEUDONYM, SEEDED, Plan
from kasuri.shuffle.secret import Secret, wipe

Pseudonyms = NDArray[np.uint64]
"""(rows, 2): 128-bit numbers as (high, low), sorted, each once."""

_NUMBER = r"^[ ]*[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,3})?[ ]*$"


@dataclass(frozen=True, eq=False, repr=False)
class Shuffled:
    """What one side hands out: pseudonyms in ascending order and randomised columns; no trace of the original order."""

    plan: Plan
    side: Side
    session: str
    pseudonyms: Pseudonyms
    columns: Mapping[str, Codes]
    guarantee: Guarantee
    secure: bool
    run: str
    """A random name; on the ledger's settlement and in the file."""
    receipt: Receipt | None = field(default=None)

    def __len__(self) -> int:
        return self.pseudonyms.shape[0]

    def __repr__(self) -> str:
        seeded_ = "" if self.secure else ", seeded: for tests only"
        return f"Shuffled(side {self.side}, {len(self)} rows, plan {self.plan.hash[:12]}{seeded_})"

    def save(self, path: str | Path, *, unmetered: bool = False) -> None:
        """Write the file that the joiner gets: Parquet, versioned, with the plan's hash. Refuses to write over."""
        if not self.secure:
            raise PrivacyError("a seeded table is for tests and is not saved")
        if NO_LEDGER in self.guarantee.assumes and not unmetered:
            raise PrivacyError("this run was charged to no ledger; say save(..., unmetered=True) if that is meant")
        import pyarrow as pa

        keys = np.ascontiguousarray(self.pseudonyms.astype(">u8")).tobytes()
        arrays = {PSEUDONYM: pa.Array.from_buffers(pa.binary(16), len(self), [None, pa.py_buffer(keys)])}
        arrays |= {name: to_arrow(codes) for name, codes in self.columns.items()}
        head = {"side": self.side, "session": self.session, "run": self.run, "metered": not unmetered}
        commit = None if self.receipt is None else (lambda: self.receipt.commit(self.run))  # type: ignore[union-attr]
        write(path, SHUFFLED, self.plan, arrays, head, commit)

    @classmethod
    def load(cls, path: str | Path, plan: Plan) -> Shuffled:
        """Read one side's file; a file of another plan or another format is refused."""
        table, head = read(path, SHUFFLED, plan)
        side = head.get("side")
        if side not in ("a", "b") or not isinstance(head.get("session"), str):
            raise FormatError(f"{path}: field side or session")
        own = plan.of(side)
        if table.column_names != [PSEUDONYM, *(column.name for column in own)]:
            raise FormatError(f"{path}: its columns are not those of side {side} of the plan")
        keys = table.column(PSEUDONYM).combine_chunks()
        if str(keys.type) != "fixed_size_binary[16]" or keys.null_count:
            raise FormatError(f"{path}: column pseudonym")
        raw = np.frombuffer(keys.buffers()[1], dtype=">u8", offset=16 * keys.offset, count=2 * len(keys))
        pseudonyms = raw.reshape(-1, 2).astype(np.uint64)
        if not ascending(pseudonyms):
            raise FormatError(f"{path}: pseudonyms must ascend, each once")
        columns = {column.name: from_arrow(table.column(column.name), column, path) for column in own}
        claim = plan.side_claim(side) if head.get("metered") is True else plan.side_claim(side).assuming(NO_LEDGER)
        return cls(
            plan, side, head["session"], pseudonyms, MappingProxyType(columns), claim, True, str(head.get("run"))
        )


class Party:
    """One side of one run, as a context: leaving it zeroes the secret, whatever happened.

    An agreed secret is derived only when the rows were found good and paid for: a run refused before that has none to
    destroy, leaves its one-time key file, and `deletion` says so. What is overwritten is what this class holds (the
    secret, the order, the unshuffled reports), also when the run fails; the caller's own rows are the caller's.

    Privacy
    -------
    Neighbours: one person's values change. Sensitivity: each column's randomizer in exact odds. Guarantee: the file of
    this side is (sum of its epsilons)-DP for whoever sees it; joined and without pseudonyms, see Plan.guarantee.
    Proof: docs/proofs/shuffle_join.md. Public: plan, keys' membership, number of rows. Assumes: the party follows the
    protocol; memory that the interpreter freed is not read by anyone.
    """

    def __init__(self, plan: Plan, side: Side, secret: Secret) -> None:
        if not isinstance(plan, Plan) or not isinstance(secret, Secret):
            raise ProtocolError("Party(plan, side, secret): a Plan and a Secret are needed")
        if side not in ("a", "b"):
            raise ProtocolError('Party: side must be "a" or "b"')
        secret.check(plan.hash, side)
        self.plan, self.side = plan, side
        self._secret = secret
        self._state = "new"
        self.notes: tuple[str, ...] = ()
        """For the operator's eyes: rows without a key, values clipped. Never in a file."""
        self.deletion: dict[str, Any] | None = None
        """The deletion record, once the block is left: what was destroyed, of which run, and when."""

    def __enter__(self) -> Party:
        if self._state != "new":
            raise ProtocolError("a Party serves one run; make a new one with a new secret")
        self._state = "open"
        return self

    def __exit__(self, *args: object) -> None:
        ran = self._state == "used"
        self._secret.destroy()
        self._state = "closed"
        self.deletion = {
            "plan": self.plan.hash,
            "side": self.side,
            "session": self._secret.session,
            "destroyed": [*self._secret.held, *(("order", "unshuffled rows", "keystreams") if ran else ())],
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def __repr__(self) -> str:
        return f"Party(side {self.side}, {self._state})"

    def run(
        self, rows: Any, *, ledger: Ledger | None = None, data: str | None = None, source: Source | None = None
    ) -> Shuffled:
        """Pseudonymise the keys, randomise every column, sort by pseudonym, and forget the rest.

        rows: a data frame, a mapping of columns, a stored table, or a CSV or Parquet file (or several), read twice in
        batches: first every fault is looked for, then (the ledger charged, the secret used up) rows are randomised. A
        query, a DuckDB relation or a lazy frame must map each record by itself, as in `count`: what one person's values
        do to the rows of others is protected by nothing. Its conditions decide who is in the table, which is public.
        ledger: pays this side's epsilons for the data set named `data`, before anything is drawn; None is unmetered,
        and said.
        Cost: O(rows); memory: 16 bytes a row and the randomised columns, twice while they are put in order.
        """
        if self._state != "open":
            raise ProtocolError(f"run() belongs inside `with Party(...)`, once; this party is {self._state}")
        source = trusted(source)
        own = self.plan.of(self.side)
        stream = open_stream(_frame(rows))
        row_by_row(stream, self.plan.key, [column.name for column in own], "if none does, collect them first")
        self._secret.check(self.plan.hash, self.side)
        n = self._checked(stream, own)
        guarantee, receipt = self.plan.side_claim(self.side).assuming(*(() if source.secure else (SEEDED,))), None
        if ledger is None:
            guarantee = guarantee.assuming(NO_LEDGER)
        elif not isinstance(ledger, Ledger):
            raise PrivacyError("run() is charged to one Ledger, or to none: ledger=None")
        else:
            receipt = ledger.reserve(guarantee, data=data, recipe="shuffle", plan=self.plan.hash)
        self._state = "used"
        try:
            pseudonyms, columns = self._draw(stream, own, n, source)
        except BaseException:
            if receipt is not None:
                with suppress(KasuriError):  # a note for the books; the first error is the one to tell
                    receipt.abandon()
            raise
        finally:
            self._secret.destroy()
        return Shuffled(self.plan, self.side, self._secret.session, pseudonyms, MappingProxyType(columns), guarantee,
                        source.secure, _secrets.token_hex(16), receipt)  # fmt: skip

    def _checked(self, stream: Stream, own: tuple[Column, ...]) -> int:
        """First reading: every fault of the table at once; the number of rows that have a key."""
        wanted = [self.plan.key, *(column.name for column in own)]
        raise_faults(
            DomainError, [f"{stream.label}: no column {name!r}" for name in wanted if name not in stream.names]
        )
        throwaway = bytearray(_secrets.token_bytes(32))  # repeats are found under a key of no other use
        seen: list[Pseudonyms] = []
        missing = total = spaced = 0
        wrong = dict.fromkeys((column.name for column in own), 0)
        outside = dict.fromkeys((column.name for column in own), 0)
        ragged: list[int] = []
        for batch in _batches(stream, wanted, ragged):
            data, ends, good = _keys(batch.column(self.plan.key), stream.label)
            total += len(good)
            missing += int((~good).sum())
            spaced += _spaced(batch.column(self.plan.key))
            seen.append(_pseudonyms(throwaway, data, ends))
            for column in own:
                values, bad = _values(column, batch.column(column.name))
                wrong[column.name] += int((bad & good).sum())
                if column.is_number:
                    made = column.numeric
                    out = (values < float(made.low)) | (values > float(made.high))
                    outside[column.name] += int((out & good & ~bad).sum())
        every = np.concatenate(seen) if seen else np.empty((0, 2), np.uint64)
        every = every[_ascent(every)]
        repeats = int((every[1:] == every[:-1]).all(axis=1).sum())
        n = every.shape[0]
        wipe(throwaway)
        faults = rows_faults(stream.label, "", RAGGED, ragged)
        if n == 0:
            faults.append(f"{stream.label}: column {self.plan.key!r} has no key on any row" if total else
                          f"{stream.label}: no rows")  # fmt: skip
        if repeats:
            faults.append(
                f"{stream.label}: {repeats} rows repeat a key; a key names one person and is there once on each side"
            )
        if spaced:
            faults.append(
                f"{stream.label}: {spaced} keys begin or end with a space, and would match no other spelling; trim them"
            )
        for column in own:
            if wrong[column.name]:
                what = "numbers" if column.is_number else "labels of the plan"
                faults.append(f"{stream.label}: column {column.name!r}: {wrong[column.name]} rows hold no {what}")
            if outside[column.name] and self.plan.outside == "refuse":
                faults.append(
                    f"{stream.label}: column {column.name!r}: {outside[column.name]} rows lie outside the plan's "
                    'bounds; correct them, or agree on a plan with outside="clip"'
                )
        raise_faults(DomainError, faults)
        notes = [f"{missing} rows have no key and were left out"] if missing else []
        notes += [f"column {name!r}: {count} values clipped to the bounds" for name, count in outside.items() if count]
        self.notes = tuple(notes)
        return n

    def _draw(
        self, stream: Stream, own: tuple[Column, ...], n: int, source: Source
    ) -> tuple[Pseudonyms, dict[str, Codes]]:
        """Second reading: randomised rows in the order of their pseudonyms; everything unshuffled is overwritten."""
        key = self._secret.take()
        wanted = [self.plan.key, *(column.name for column in own)]
        pseudonyms = np.empty((n, 2), dtype=np.uint64)
        unshuffled: dict[str, Codes] = {}
        at, ragged = 0, list[int]()
        order, done = np.empty(0, np.int64), False
        out = pseudonyms[:0]
        try:
            for number, batch in enumerate(_batches(stream, wanted, ragged)):
                data, ends, good = _keys(batch.column(self.plan.key), stream.label)
                size = len(ends) - 1
                if at + size > n:
                    raise ProtocolError(_CHANGED)
                pseudonyms[at : at + size] = _pseudonyms(key, data, ends)
                for column in own:
                    codes = self._randomized(column, batch.column(column.name), good, source, number)
                    held = unshuffled.setdefault(column.name, np.empty((n, *codes.shape[1:]), dtype=codes.dtype))
                    held[at : at + size] = codes
                    codes.fill(0)
                at += size
            order = _ascent(pseudonyms)
            out = pseudonyms[order]
            if at != n or ragged or not ascending(out):
                raise ProtocolError(_CHANGED)
            columns = {name: codes[order] for name, codes in unshuffled.items()}
            done = True
        finally:  # also where it fails: the frame of an error lives as long as its traceback
            wipe(key)
            for spent in (order, pseudonyms, *unshuffled.values(), *(() if done else (out,))):
                spent.fill(0)
        return out, columns

    def _randomized(self, column: Column, values: Any, good: NDArray[np.bool_], source: Source, batch: int) -> Codes:
        found, bad = _values(column, values)
        found, bad = found[good], bad[good]
        if bad.any():
            raise ProtocolError(_CHANGED)
        place = _place(source, self.plan, column, batch)
        if not column.is_number:
            # by label: a number could be taken for a label that is a numeral
            return column.randomize(np.array(column.category.labels)[found], place)
        made = column.numeric
        clipped = np.clip(found, float(made.low), float(made.high))
        if self.plan.outside == "refuse" and not np.array_equal(clipped, found):
            raise ProtocolError(_CHANGED)
        return column.randomize(clipped, place)


_CHANGED = "the rows changed between the two readings; nothing was kept, and the secret is used up"


def _pseudonyms(key: bytearray, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> Pseudonyms:
    """Keyed BLAKE2b-128 of every key; the state that stands for the secret is zeroed."""
    from kasuri._kernels.shuffle import key_state, pseudonyms

    out = np.empty((len(ends) - 1, 2), dtype=np.uint64)
    state = key_state(np.frombuffer(key, dtype=np.uint8))
    pseudonyms(state, data, ends, out)
    state.fill(0)
    return out


def _ascent(pseudonyms: Pseudonyms) -> NDArray[np.int64]:
    return np.lexsort((pseudonyms[:, 1], pseudonyms[:, 0]))


def ascending(pseudonyms: Pseudonyms) -> bool:
    """Whether they ascend, each once."""
    high, low = pseudonyms[:, 0], pseudonyms[:, 1]
    return bool(((high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))).all())


def _place(source: Source, plan: Plan, column: Column, batch: int) -> Source:
    """A fresh key for every column and batch; for a seeded source, one that depends on both."""
    if source.secure:
        return secure()
    text = f"{source.seed}|{plan.hash}|{column.name}|{batch}".encode()
    return seeded(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big"))


def _frame(rows: Any) -> Any:
    if isinstance(rows, Mapping):
        import pyarrow as pa

        try:
            return pa.table(dict(rows))
        except (pa.ArrowException, TypeError, ValueError):
            raise DomainError("rows: the columns of a mapping must be lists of one length and one type each") from None
    return rows


def _batches(stream: Stream, wanted: list[str], ragged: list[int]) -> Iterator[Any]:
    for batch, _ in stream.start(wanted, ragged):
        yield batch


def _keys(column: Any, label: str) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.bool_]]:
    """The keys of a batch that are there as one run of bytes and their ends; and which rows have one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_null(kind):
        column = column.cast(pa.large_string())
    elif not _is_text(kind):
        raise DomainError(f"{label}: keys must be text or whole numbers: as {kind} one person could have two spellings")
    column = column.cast(pa.large_string())
    good = pc.fill_null(pc.greater(pc.binary_length(column), 0), False).to_numpy(zero_copy_only=False)
    column = column.filter(pa.array(good)) if not good.all() else column
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    buffers = column.buffers()
    ends = np.frombuffer(buffers[1], dtype=np.int64, count=len(column) + 1, offset=8 * column.offset)
    data = np.frombuffer(buffers[2], dtype=np.uint8) if buffers[2] is not None else np.empty(0, np.uint8)
    return data, ends, np.asarray(good)


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _spaced(column: Any) -> int:
    """How many keys have white space at an end: the other side hardly spells them so, and they would not match."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type) or pa.types.is_null(column.type):
        return 0
    column = column.cast(pa.large_string())
    try:
        trimmed = pc.utf8_trim_whitespace(column)
    except pa.ArrowInvalid:  # a key that is not UTF-8
        trimmed = pc.ascii_trim_whitespace(column)
    return int(pc.sum(pc.not_equal(column, trimmed)).as_py() or 0)


def _values(column: Column, values: Any) -> tuple[Any, NDArray[np.bool_]]:
    """A batch's numbers (float64, 0 where there is none) or category numbers, and which rows hold none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    textual = _is_text(values.type)
    values = values.cast(pa.large_string()) if textual else values
    if not column.is_number:
        labels = pa.array(column.category.labels, pa.large_string())
        if not textual and not pa.types.is_integer(values.type) and not pa.types.is_null(values.type):
            return np.zeros(len(values), np.int64), np.ones(len(values), dtype=bool)
        found = pc.index_in(values if textual else values.cast(pa.large_string()), value_set=labels)
        bad = pc.is_null(found).to_numpy(zero_copy_only=False)
        return np.asarray(pc.fill_null(found, 0).to_numpy(zero_copy_only=False)), np.asarray(bad)
    if textual:
        good = pc.fill_null(pc.match_substring_regex(values, _NUMBER), False)
        values = pc.utf8_trim_whitespace(pc.if_else(good, values, pa.scalar(None, values.type)))
    elif not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_decimal(values.type)
              or pa.types.is_null(values.type)):  # fmt: skip
        return np.zeros(len(values)), np.ones(len(values), dtype=bool)
    numbers = values.cast(pa.float64(), safe=False)
    bad = pc.is_null(numbers).to_numpy(zero_copy_only=False)
    plain = np.asarray(pc.fill_null(numbers, 0.0).to_numpy(zero_copy_only=False))
    bad = np.asarray(bad) | ~np.isfinite(plain)
    return np.where(bad, 0.0, plain), bad
