"""One TOML file for one release: data, domain, unit, recipe, budget, outputs. Unknown keys are refused.

Nothing public is derived from the data: what the file does not say is an error, never a guess.
"""

from __future__ import annotations

import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from kasuri.budget.ledger import Ledger
from kasuri.draw import release as make_release
from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults, rows_faults
from kasuri.ingest import Query, Table, axes, count, read_array, read_estat
from kasuri.ingest.frames import numbers
from kasuri.ingest.micro import Progress, needed, typed_ids
from kasuri.ingest.sources import RAGGED, numbered, open_stream
from kasuri.ingest.stream import trusted
from kasuri.job.parameters import (
    MODELS,
    AnyRecipe,
    Columns,
    Exact,
    File,
    Part,
    Place,
    form_faults,
    places,
    refuse_public,
)
from kasuri.privacy import asked
from kasuri.published.protected import Described
from kasuri.recipes.mechanism import Mechanism
from kasuri.schema import Domain, Mask, Mesh, Nominal, Ordered, Time, Unit
from kasuri.store import ready
from kasuri.store.export import export_faults
from kasuri.table import Counts


class ConditionPart(Part):
    """One condition on a stored column: `column` `op` `value`; "is null" and "is not null" take no value."""

    column: str
    op: Literal["=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]
    value: bool | int | float | str | list[bool | int | float | str] | None = Field(
        None, description='A number, a text, true or false; after "in" and "not in" a list of them.'
    )

    def words(self) -> tuple[Any, ...]:
        return (self.column, self.op) if self.value is None else (self.column, self.op, self.value)


class Data(Part):
    """Where the rows are: `files`, or `database` with `table` (and `where`) or with `query`."""

    name: str = Field(description='Declared name of the data, e.g. "census-2020".')
    kind: Literal["table", "estat"] = Field("table", description="table: CSV, Parquet or a query. estat: e-Stat files.")
    files: list[File] = Field(default_factory=list, description="Files, relative to this job file.")
    database: File | None = Field(None, description="A .duckdb or SQLite file, or postgresql://...")
    table: str | tuple[str, str] | None = Field(
        None, description="A stored table of the database, or [schema, table]; kasuri writes the SQL."
    )
    where: list[ConditionPart] = Field(
        default_factory=list, description="Conditions on columns of the table; rows stay for which all hold."
    )
    query: str | None = Field(None, description="One SELECT whose rows are counted.")
    reads: dict[str, File] = Field(
        default_factory=dict, description="Name -> .csv or .parquet file that a query of DuckDB may read by that name."
    )
    assume: Literal["rows depend on their own id alone"] | None = Field(
        None, description="Vouches for a query where kasuri cannot see it; the release then says so."
    )
    columns: Columns = Field(
        description="Axis -> column of codes or labels, [row, col] or {lat, lon}. estat: label -> column."
    )
    weight: str | None = Field(None, description="Column of counts, or (with ids) of weights.")
    suppressed: Literal["refuse", "merged"] = Field("refuse", description='estat: what withheld numbers ("*") mean.')
    sampling_key: str | None = Field(
        None, pattern="^[0-9a-f]{64}$", description="64 hexadecimal digits; fresh at random unless given."
    )
    memory: str = Field("1GB", description="Memory limit of the count in DuckDB.")

    @model_validator(mode="after")
    def _one_source(self) -> Data:
        asked = [self.table, self.query].count(None)
        if bool(self.files) == bool(self.database) or asked != (2 if self.database is None else 1):
            raise ValueError("give files, or database and table, or database and query")
        if self.where and self.table is None:
            raise ValueError("where goes with table; a query has its own WHERE")
        if self.reads and self.query is None:
            raise ValueError("reads goes with query")
        return self


class MeshAxis(Part):
    kind: Literal["mesh"]
    name: str
    level: str | None = Field(None, description="80km, 10km, 5km, 2km, 1km, 500m, 250m, 125m")
    window: str | None = Field(None, description="A public window by name, or a first-order mesh such as 5339.")
    origin: tuple[int, int] | None = Field(None, description="(row, col) of the south-west cell, with shape.")
    shape: tuple[int, int] | None = None
    crs: str = "JGD2011"


class OrderedAxis(Part):
    kind: Literal["ordered"]
    name: str
    size: int
    labels: list[str] | None = None


class NominalAxis(Part):
    kind: Literal["nominal"]
    name: str
    labels: list[str]


class TimeAxis(Part):
    kind: Literal["time"]
    name: str
    start: str
    seconds: int
    size: int


AnyAxis = Annotated[MeshAxis | OrderedAxis | NominalAxis | TimeAxis, Field(discriminator="kind")]


class MaskPart(Part):
    """A public file of impossible cells, such as the sea."""

    axes: list[str] = Field(min_length=1, description="The axes it is over, in the order of the array's dimensions.")
    file: File = Field(description="A .npy array of true (nobody can be there) and false, relative to this job file.")


class UnitPart(Part):
    id: str = Field(description="The id column: who is protected.")
    change: Literal["add-remove", "replace"]
    max_cells: int
    max_weight: int | None = None


class Budget(Part):
    epsilon: Exact = Field(description='An exact decimal in quotes, e.g. "0.1"; above 20: "25 weak".')
    ledger: File | None = Field(default=None, description="The ledger that pays (see kasuri ledger open).")
    unmetered: Literal[True] | None = Field(default=None, description="Charged to no ledger, and the release says so.")

    @model_validator(mode="after")
    def _one_payer(self) -> Budget:
        if (self.ledger is None) == (self.unmetered is None):
            raise ValueError("say who pays: ledger = FILE, or unmetered = true for a release charged to no ledger")
        return self


class Output(Part):
    folder: File = Field(description="New folder for the release.")
    exports: list[File] = Field(default_factory=list, description=".csv .parquet .gpkg .sqlite .duckdb, postgresql://")
    levels: list[str] = Field(default_factory=list, description="Coarser mesh levels to add to the exports.")


class SparkPart(Part):
    """How a job with engine = "spark" runs; the session itself is configured as Spark's own are."""

    work: File = Field(
        description="A folder that driver and executors share; private folders are made and removed there."
    )
    partitions: int | None = Field(None, ge=1, description="Tasks per shuffle; the result does not depend on it.")


class Job(Part):
    """A job file, read and checked for form; `domain`, `unit` and `mechanism` check its facts."""

    engine: Literal["local", "spark"] = Field("local", description="Where it runs: this machine, or a Spark cluster.")
    data: Data
    axes: list[AnyAxis] = Field(min_length=1)
    masks: list[MaskPart] = Field(default_factory=list)
    unit: UnitPart
    recipe: AnyRecipe = MODELS["haar_topdown"](name="haar_topdown")
    budget: Budget
    output: Output
    spark: SparkPart | None = None

    @model_validator(mode="after")
    def _spark_can(self) -> Job:
        if (self.engine == "spark") != (self.spark is not None):
            raise ValueError('engine = "spark" and the table [spark] (work = FOLDER) go together')
        if self.spark is None:
            return self
        faults = []
        if self.data.kind != "table" or not all(file.lower().endswith((".parquet", "/")) for file in self.data.files):
            faults.append("data.files are Parquet files or folders (ending in /)")
        if not self.data.files:
            faults.append("data comes from files, not from a query")
        if self.output.exports:
            faults.append("output.exports must be empty; other tools read the saved Parquet files")
        if faults:
            raise ValueError(f'with engine = "spark": {"; ".join(faults)}')
        return self


def load(path: str | Path) -> Job:
    """Read a job file; every fault of its form is named at once, by line and key."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        content = tomllib.loads(text)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists in lists in lists
        raise FormatError(f"{path}: not TOML ({error})") from None
    try:
        return Job.model_validate(content)
    except ValidationError as error:
        found = sorted((line_of(text, at), words) for at, words in form_faults(error, content))
        raise FormatError(*(f"{path}, line {line}: {words}" for line, words in found)) from None


def line_of(text: str, at: Place) -> int:
    """The line of TOML on which the key `at` is written, or else the nearest table around it; 1 if there is neither.

    Lines up to the end of a value are TOML by themselves; the first of them that hold the key end with its value, and
    every shorter part of that value is no TOML and counts as the whole.
    """
    lines = text.splitlines(keepends=True)

    def depth(count: int) -> int:
        """How many parts of `at` the first `count` lines hold."""
        while True:
            try:
                content: Any = tomllib.loads("".join(lines[:count]))
                break
            except tomllib.TOMLDecodeError:
                count += 1
        for done, part in enumerate(at):
            if part not in (range(len(content)) if isinstance(content, list) else content):
                return done
            content = content[part]
        return len(at)

    most = depth(len(lines))
    return 1 + bisect_left(range(1, len(lines) + 1), most, key=depth) if most else 1


def schema() -> dict[str, Any]:
    """The JSON Schema of a job file, for editors."""
    return Job.model_json_schema()


def domain(job: Job, base: Path) -> Domain:
    """The public domain the job declares; the files of its masks are relative to `base`."""
    faults: list[str] = []
    made: list[Any] = []
    for axis in job.axes:
        try:
            made.append(_axis(axis))
        except KasuriError as error:
            faults += error.faults
    masks: list[Mask] = []
    for part in job.masks:
        try:
            masks.append(Mask.of(part.axes, read_array(base / part.file)))
        except KasuriError as error:
            faults += error.faults
    raise_faults(DomainError, faults)
    return Domain(tuple(made), tuple(masks))


def _axis(axis: AnyAxis) -> Any:
    if isinstance(axis, OrderedAxis):
        return Ordered(axis.name, axis.size, None if axis.labels is None else tuple(axis.labels))
    if isinstance(axis, NominalAxis):
        return Nominal(axis.name, tuple(axis.labels))
    if isinstance(axis, TimeAxis):
        return Time(axis.name, axis.start, axis.seconds, axis.size)
    if axis.window is not None:
        if axis.origin is not None or axis.shape is not None:
            raise DomainError(f"axis {axis.name!r}: give window, or origin and shape, not both")
        return replace(Mesh.window(axis.name, axis.window, level=axis.level or "500m"), crs=axis.crs)
    if axis.shape is None:
        raise DomainError(f"axis {axis.name!r}: the public window is missing: window, or origin and shape")
    return Mesh(axis.name, axis.level, axis.origin or (0, 0), shape=axis.shape, crs=axis.crs)


def unit(job: Job) -> Unit:
    return Unit(job.unit.id, job.unit.change, job.unit.max_cells, job.unit.max_weight)


def mechanism(job: Job, base: Path, table: Domain) -> Mechanism:
    """The recipe the job asks for; its public files, relative to `base`, are read, and are not the data."""
    refuse_public(job.recipe, job.data.name, sources(job, base), base)
    return job.recipe.mechanism(base, table, *public_columns(job))


def public_columns(job: Job) -> tuple[dict[str, Any] | None, str | None]:
    """Where the axes and the numbers of a public table stand unless the recipe says otherwise: where the data's do."""
    return places(job.data.columns) if job.data.kind == "table" else None, job.data.weight


def sources(job: Job, base: Path) -> list[Any]:
    """Where the confidential rows are: paths, or addresses as Spark takes them, or a table or query of a database."""
    if job.data.database is not None:
        address = job.data.database
        where = address if "://" in address else str(base / address)
        if job.data.table is not None:
            return [Table(where, job.data.table, tuple(part.words() for part in job.data.where))]
        reads = {name: str(base / file) for name, file in job.data.reads.items()}
        return [Query(where, job.data.query or "", reads)]
    if job.spark is not None:
        return [file if "://" in file else f"file://{(base / file).absolute()}" for file in job.data.files]
    return [base / file for file in job.data.files]


def counts(job: Job, base: Path, progress: Progress | None = None) -> Counts:
    """Count the job's data; paths are relative to `base`."""
    table, who, found = domain(job, base), unit(job), sources(job, base)
    if job.data.kind == "estat":
        where: Any = places(job.data.columns)
        meshes = [axis.name for axis in table.axes if isinstance(axis, Mesh)]
        picked = where[meshes[0]] if list(where) == meshes[:1] else where
        return read_estat(found, table, columns=picked, unit=who, data=job.data.name, suppressed=job.data.suppressed)
    source = found[0] if len(found) == 1 else found
    return count(
        source,
        table,
        columns=places(job.data.columns),
        unit=who,
        weight=job.data.weight,
        data=job.data.name,
        key=_sampling_key(job),
        memory=job.data.memory,
        progress=progress,
        away=_away(job, base),
        assume=job.data.assume,
    )


def _sampling_key(job: Job) -> bytes | None:
    return None if job.data.sampling_key is None else bytes.fromhex(job.data.sampling_key)


def _away(job: Job, base: Path) -> list[Path]:
    """Where no record may lie, not even for the time of the count."""
    return [base, base / job.output.folder]


def _exports(job: Job, base: Path) -> list[str]:
    return [export if "://" in export else str(base / export) for export in job.output.exports]


def judge_exports(table: Domain, targets: list[str], levels: list[str]) -> None:
    """Refuse, before the data is read, what no release over `table` could be exported to."""
    raise_faults(DomainError, export_faults(table, targets, levels))


def run(job: Job, base: Path, *, threads: int | None = None, progress: Progress | None = None) -> Described:
    """Count, release, save and export, here or on Spark. Everything that can be refused without the data is refused
    before it is read."""
    table, who = domain(job, base), unit(job)
    recipe = mechanism(job, base, table)
    _judge_recipe(job, recipe, table, who)
    target = base / job.output.folder
    if target.exists():
        raise DomainError(f"{target} exists; a release is never written over another")
    judge_exports(table, _exports(job, base), job.output.levels)
    book = None if job.budget.ledger is None else Ledger.load(base / job.budget.ledger)
    ready(target)  # writable, before anything is read or charged
    if job.spark is not None:
        return _run_on_spark(job, job.spark, base, recipe, book)
    released = make_release(
        counts(job, base, progress), recipe, epsilon=job.budget.epsilon, ledger=book, threads=threads
    )
    released.save(str(target), unmetered=book is None)
    for where in _exports(job, base):
        released.export(where, levels=job.output.levels, unmetered=book is None)
    return released


def _judge_recipe(job: Job, recipe: Mechanism, table: Domain, who: Unit) -> None:
    """Refuse a recipe that has no guarantee here, or does not run where the job runs, before any session is started."""
    found = recipe.on(table, who, asked(job.budget.epsilon))
    if job.spark is not None:
        from kasuri.spark.subtrees import plan

        plan(found)


def _run_on_spark(job: Job, part: SparkPart, base: Path, recipe: Mechanism, book: Ledger | None) -> Described:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise DomainError("engine = 'spark' needs the extra: pip install 'kasuri[spark]'") from None
    from kasuri import spark

    frame = SparkSession.builder.getOrCreate().read.parquet(*sources(job, base))
    released = spark.release(
        frame, domain(job, base), recipe, epsilon=job.budget.epsilon, unit=unit(job), ledger=book,
        columns=places(job.data.columns), work=base / part.work, weight=job.data.weight, data=job.data.name,
        key=_sampling_key(job), partitions=part.partitions, assume=job.data.assume,
    )  # fmt: skip
    with released:
        released.save(str(base / job.output.folder), unmetered=book is None)
    return released


def check(path: str | Path, *, outside: bool = False) -> list[str]:
    """Every fault of a job file and of its data, in one go: file, row, column, rule. The answer is confidential.

    outside=True lets records fall outside the domain, as `run` does.
    """
    path = Path(path)
    try:
        job = load(path)
    except FormatError as error:
        return list(error.faults)
    text, base = path.read_text(encoding="utf-8"), path.parent
    faults: list[str] = []
    parts: dict[str, Any] = {}

    def report(at: str, found: Iterable[str]) -> None:
        faults.extend(f"{path}, line {line_of(text, (at,))}: {at}: {fault}" for fault in found)

    def attempt(name: str, at: str, make: Callable[[], Any]) -> None:
        try:
            parts[name] = make()
        except KasuriError as error:
            report(at, error.faults)

    attempt("domain", "axes", lambda: domain(job, base))
    attempt("unit", "unit", lambda: unit(job))
    if "domain" in parts:
        attempt("recipe", "recipe", lambda: mechanism(job, base, parts["domain"]))
        report("output", export_faults(parts["domain"], _exports(job, base), job.output.levels))
    if len(parts) == 3:
        attempt("claim", "recipe", lambda: _judge_recipe(job, parts["recipe"], parts["domain"], parts["unit"]))
    if (base / job.output.folder).exists():
        report("output", ["folder exists; a release is never written over another"])
    if "domain" in parts and "unit" in parts and job.spark is None:  # the rows of a cluster are not read here
        faults += _data_faults(job, base, parts["domain"], parts["unit"], outside)
    return faults


def _data_faults(job: Job, base: Path, table: Domain, who: Unit, outside: bool) -> list[str]:
    faults: list[str] = []
    records = []
    if job.data.kind == "table":
        try:
            found = sources(job, base)
        except KasuriError as error:
            return list(error.faults)
        for source in found:
            try:
                stream = open_stream(source, memory=job.data.memory, away=_away(job, base))
            except KasuriError as error:
                faults += error.faults
                continue
            if who.id in stream.names:
                records.append(stream)
    if not records:
        if not faults:
            try:
                counts(job, base)
            except KasuriError as error:
                faults += error.faults
        return faults
    kinds: set[str] = set()
    for stream in records:
        try:
            faults += _record_faults(stream, job, table, who, outside, kinds)
        except KasuriError as error:
            faults += error.faults
    if len(kinds) > 1:
        faults.append(f"column {who.id}: ids are whole numbers in one part and text in another; use one")
    return faults


def _record_faults(stream: Any, job: Job, table: Domain, who: Unit, outside: bool, kinds: set[str]) -> list[str]:
    """The faults of records, by row, which a release passes over in silence; the kinds of ids are added to `kinds`."""
    import numpy as np
    import pyarrow as pa

    columns = places(job.data.columns)
    found = axes.place_faults(stream.names, table, columns, stream.label)
    if job.data.weight is not None and job.data.weight not in stream.names:
        found.append(f"{stream.label}: no column {job.data.weight!r}; is there a header line?")
    if job.data.weight is not None and who.max_weight is None:
        found.append(f"{stream.label}: unit.max_weight must bound the weights of records")
    if not found:
        found += axes.twice(stream.names, needed(columns, who, job.data.weight), stream.label)
    if found:
        return found
    trusted(stream, who.id, needed(columns, who, job.data.weight), job.data.assume)
    wrong_rows: dict[tuple[str, str], list[Any]] = {}

    def report(wrong: Any, column: str, rule: str) -> None:
        wrong_rows.setdefault((column, rule), []).append(np.flatnonzero(wrong) + done)

    done = 0
    ragged: list[int] = []
    for batch, _ in stream.start(needed(columns, who, job.data.weight), ragged):
        ids = batch.column(who.id)
        if not pa.types.is_null(ids.type):
            try:
                kind, ids = typed_ids(ids, None, stream.label, who.id)
                kinds.add(kind)
            except DomainError as error:
                found += [fault for fault in error.faults if fault not in found]
        report(
            ids.is_null().to_numpy(zero_copy_only=False),
            who.id,
            f"the id is missing, not UTF-8 or longer than {axes.LONGEST} bytes",
        )
        if job.data.weight is not None:
            values, wrong = numbers(batch.column(job.data.weight))
            wrong |= (values < 1) | (values != np.floor(values))
            report(wrong, job.data.weight, "not a whole number of at least 1")
        if not outside:
            index, possible = [], np.ones(batch.num_rows, dtype=bool)
            for axis in table.axes:
                place = columns[axis.name]
                names = axes.names(place)
                parts, wrong, rule = axes.from_arrow(axis, place, [batch.column(name) for name in names])
                report(wrong, "/".join(names), rule)
                index += parts
                possible &= ~wrong
            if table.mask:
                report(possible & ~table.possible(table.ravel(index)), "/".join(names), "a cell that is masked")
        done += batch.num_rows
    found += rows_faults(stream.label, "", RAGGED, ragged)
    for (column, rule), at in wrong_rows.items():
        found += rows_faults(stream.label, column, rule, numbered(np.concatenate(at), ragged))
    return found


TEMPLATE = """\
# A kasuri job: one table, one release. Run:  kasuri check job.toml  then  kasuri release job.toml
# Nothing here is ever taken from the data; paths are relative to this file.
# engine = "spark"                # on a cluster, with the table [spark] below; see the guide

[data]
name = "census-2020"              # a declared name, used in the ledger and the certificate
files = ["census.csv"]            # CSV (UTF-8) or Parquet; or a stored table of a DuckDB or SQLite file or PostgreSQL:
# database = "x.duckdb"           #   table = "visits", where = [{ column = "age", op = ">=", value = 18 }]
                                  #   or query = "SELECT person, mesh_code FROM visits WHERE age >= 18"
columns = { grid = "mesh_code" }  # axis -> column; a mesh also ["row", "col"] or { lat = "y", lon = "x" }
weight = "population"             # counts of a table that is one row per cell; leave out for records with ids
# sampling_key = "64 hexadecimal digits"   which cells of a crowded unit stay; fresh at random unless given

[[axes]]                          # the public domain
kind = "mesh"
name = "grid"
level = "500m"                    # 80km 10km 5km 2km 1km 500m 250m 125m
window = "kanto"                  # japan kanto kinki kyushu tohoku, a first-order mesh such as "5339",
                                  # or: origin = [8400, 6080] and shape = [512, 512]
# [[axes]]
# kind = "nominal"                # also "ordered" (size, labels) and "time" (start, seconds, size)
# name = "sex"
# labels = ["female", "male"]

# [[masks]]                       # public impossible cells, such as the sea: always 0, and less noise elsewhere
# axes = ["grid"]
# file = "sea.npy"                # a numpy array of true (nobody can be there) and false, of the window's shape

[unit]                            # who is protected: no defaults
id = "person"                     # the id column; with it in the file, kasuri bounds contributions itself
change = "add-remove"             # or "replace"
max_cells = 1
# max_weight = 10                 # needed where records carry weights

[recipe]                          # its name and its arguments, as in Python; kasuri plan job.toml shows its error
name = "haar_topdown"
# name = "bayes_tree"             # small errors at every area size; how epsilon is shared over the levels:
# pilot = true                    #   one level is measured first and chooses, or
# shares = "middle"               #   "sparse", "middle", "dense", or { 0 = "0.6", 3 = "0.2", 5 = "0.2" } by height, or
# facts = { density = "0.35", size = "480" }   # public facts: share of non-empty cells, their mean count
# prior = { public = "census-2015", file = "census-2015.csv" }   # an earlier table, declared public by this name
# name = "auto"                   # the best of the trees for the areas you publish
# areas = [1, 16, 256]            #   sizes in cells
# metric = "rmse"                 #   or "mae"; and prior, as above
# name = "refined_tree"           # shares = "even16", "u4", "tilt16" or by height
# name = "neg_l2_simplex"         # gamma = "auto" or an exact decimal; tune_on = a table, declared as prior is
# name = "sparse"                 # threshold = "auto" or a whole number

[budget]
epsilon = "0.1"                   # exact, in quotes
unmetered = true                  # charged to no ledger, and the release says so
# ledger = "census.ledger"        # or instead: the budget that pays (kasuri ledger open)

[output]
folder = "release"                # a new folder
exports = []                      # "release.gpkg", "release.csv", "release.sqlite", "postgresql://..."
levels = []                       # "1km", "10km": the sums at coarser levels, in the exports

# [spark]
# work = "/shared/tmp"            # a folder that driver and executors share
# partitions = 400                # tasks per shuffle
"""
