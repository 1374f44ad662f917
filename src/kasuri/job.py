"""One TOML file for one release: data, domain, unit, recipe, budget, outputs. Unknown keys are refused.

Nothing public is derived from the data: what the file does not say is an error, never a guess.
"""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kasuri.draw import release as make_release
from kasuri.errors import DomainError, FormatError, KasuriError, raise_faults, rows_faults
from kasuri.ingest import Query, axes, count, read_estat
from kasuri.ingest.frames import numbers
from kasuri.ingest.micro import Progress, needed, typed_ids
from kasuri.ingest.sources import RAGGED, numbered, open_stream
from kasuri.ledger import Ledger
from kasuri.mechanism import Mechanism, resolve
from kasuri.published import Described
from kasuri.recipes import RECIPES
from kasuri.schema import Domain, Mask, Mesh, Nominal, Ordered, Time, Unit
from kasuri.store.export import export_faults
from kasuri.table import Counts


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LatLon(_Part):
    """Coordinates in degrees, in the mesh's reference system."""

    lat: str
    lon: str


class Data(_Part):
    """Where the rows are. One of `files` and `database` (with `query`)."""

    name: str = Field(description='Declared name of the data, e.g. "census-2020".')
    kind: Literal["table", "estat"] = Field("table", description="table: CSV, Parquet or a query. estat: e-Stat files.")
    files: list[str] = Field(default_factory=list, description="Files, relative to this job file.")
    database: str | None = Field(None, description="A .duckdb or SQLite file, or postgresql://...")
    query: str | None = Field(None, description="SQL whose rows are counted.")
    columns: dict[str, str | list[str] | LatLon] = Field(
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
        if bool(self.files) == bool(self.database) or (self.database is None) != (self.query is None):
            raise ValueError("give files, or database and query")
        return self


class MeshAxis(_Part):
    kind: Literal["mesh"]
    name: str
    level: str | None = Field(None, description="80km, 10km, 5km, 2km, 1km, 500m, 250m, 125m")
    window: str | None = Field(None, description="A public window by name, or a first-order mesh such as 5339.")
    origin: tuple[int, int] | None = Field(None, description="(row, col) of the south-west cell, with shape.")
    shape: tuple[int, int] | None = None
    crs: str = "JGD2011"


class OrderedAxis(_Part):
    kind: Literal["ordered"]
    name: str
    size: int
    labels: list[str] | None = None


class NominalAxis(_Part):
    kind: Literal["nominal"]
    name: str
    labels: list[str]


class TimeAxis(_Part):
    kind: Literal["time"]
    name: str
    start: str
    seconds: int
    size: int


AnyAxis = Annotated[MeshAxis | OrderedAxis | NominalAxis | TimeAxis, Field(discriminator="kind")]


class MaskPart(_Part):
    """A public file of impossible cells, such as the sea."""

    axes: list[str] = Field(min_length=1, description="The axes it is over, in the order of the array's dimensions.")
    file: str = Field(description="A .npy array of true (nobody can be there) and false, relative to this job file.")


class UnitPart(_Part):
    id: str = Field(description="The id column: who is protected.")
    change: Literal["add-remove", "replace"]
    max_cells: int
    max_weight: int | None = None


class Recipe(_Part):
    name: str = "haar_topdown"
    order: str | None = None


class Budget(_Part):
    epsilon: str = Field(description='An exact decimal in quotes, e.g. "0.1".')
    ledger: str | None = Field(default=None, description="The ledger that pays (see kasuri ledger open).")
    unmetered: Literal[True] | None = Field(default=None, description="Charged to no ledger, and the release says so.")

    @model_validator(mode="after")
    def _one_payer(self) -> Budget:
        if (self.ledger is None) == (self.unmetered is None):
            raise ValueError("say who pays: ledger = FILE, or unmetered = true for a release charged to no ledger")
        return self


class Output(_Part):
    folder: str = Field(description="New folder for the release.")
    exports: list[str] = Field(default_factory=list, description=".csv .parquet .gpkg .sqlite .duckdb, postgresql://")
    levels: list[str] = Field(default_factory=list, description="Coarser mesh levels to add to the exports.")


class SparkPart(_Part):
    """How a job with engine = "spark" runs; the session itself is configured as Spark's own are."""

    work: str = Field(
        description="A folder that driver and executors share; private folders are made and removed there."
    )
    partitions: int | None = Field(None, ge=1, description="Tasks per shuffle; the result does not depend on it.")


class Job(_Part):
    """A job file, read and checked for form; `domain`, `unit` and `mechanism` check its facts."""

    engine: Literal["local", "spark"] = Field("local", description="Where it runs: this machine, or a Spark cluster.")
    data: Data
    axes: list[AnyAxis] = Field(min_length=1)
    masks: list[MaskPart] = Field(default_factory=list)
    unit: UnitPart
    recipe: Recipe = Recipe()
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
    """Read a job file; every fault of its form is named at once, by key."""
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FormatError(f"{path}: cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not TOML ({error})") from None
    try:
        return Job.model_validate(content)
    except ValidationError as error:
        raise FormatError(*(f"{path}: {_words(fault)}" for fault in error.errors())) from None


def _words(fault: Any) -> str:
    where = ".".join(str(part) for part in fault["loc"]) or "the file"
    if fault["type"] == "extra_forbidden":
        return f"{where}: unknown key; is it misspelt?"
    if fault["type"] == "missing":
        return f"{where}: missing; it has no default"
    return f"{where}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


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


def read_array(path: Path) -> Any:
    """The array of a public .npy file."""
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise DomainError(f"{path} is not a .npy array") from None


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


def mechanism(job: Job) -> Mechanism:
    if job.recipe.name not in RECIPES:
        raise DomainError(f"recipe {job.recipe.name!r} is not known; use {', '.join(sorted(RECIPES))}")
    options = {} if job.recipe.order is None else {"order": job.recipe.order}
    try:
        return RECIPES[job.recipe.name](**options)
    except TypeError:
        raise DomainError(f"recipe {job.recipe.name!r} has no order") from None


def _sources(job: Job, base: Path) -> list[Any]:
    if job.data.database is not None:
        address = job.data.database
        where = address if "://" in address else str(base / address)
        return [Query(where, job.data.query or "")]
    return [base / file for file in job.data.files]


def _columns(job: Job) -> dict[str, Any]:
    return {
        name: {"lat": place.lat, "lon": place.lon} if isinstance(place, LatLon) else place
        for name, place in job.data.columns.items()
    }


def counts(job: Job, base: Path, progress: Progress | None = None) -> Counts:
    """Count the job's data; paths are relative to `base`."""
    table, who, sources = domain(job, base), unit(job), _sources(job, base)
    if job.data.kind == "estat":
        places: Any = _columns(job)
        meshes = [axis.name for axis in table.axes if isinstance(axis, Mesh)]
        picked = places[meshes[0]] if list(places) == meshes[:1] else places
        return read_estat(sources, table, columns=picked, unit=who, data=job.data.name, suppressed=job.data.suppressed)
    source = sources[0] if isinstance(sources[0], Query) or len(sources) == 1 else sources
    return count(
        source,
        table,
        columns=_columns(job),
        unit=who,
        weight=job.data.weight,
        data=job.data.name,
        key=_sampling_key(job),
        memory=job.data.memory,
        progress=progress,
        away=_away(job, base),
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
    table, who, recipe = domain(job, base), unit(job), mechanism(job)
    _judge_recipe(job, recipe, table, who)
    target = base / job.output.folder
    if target.exists():
        raise DomainError(f"{target} exists; a release is never written over another")
    judge_exports(table, _exports(job, base), job.output.levels)
    book = None if job.budget.ledger is None else Ledger.load(base / job.budget.ledger)
    if job.spark is not None:
        return _run_on_spark(job, job.spark, base, book)
    released = make_release(
        counts(job, base, progress), recipe, epsilon=job.budget.epsilon, ledger=book, threads=threads
    )
    released.save(str(target), unmetered=book is None)
    for where in _exports(job, base):
        released.export(where, levels=job.output.levels, unmetered=book is None)
    return released


def _judge_recipe(job: Job, recipe: Mechanism, table: Domain, who: Unit) -> None:
    """Refuse a recipe that has no guarantee here, or does not run where the job runs, before any session is started."""
    found = resolve(recipe, table, who, job.budget.epsilon)
    if job.spark is not None:
        from kasuri.spark.subtrees import plan

        plan(found)


def _run_on_spark(job: Job, part: SparkPart, base: Path, book: Ledger | None) -> Described:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise DomainError("engine = 'spark' needs the extra: pip install 'kasuri[spark]'") from None
    from kasuri import spark

    frame = SparkSession.builder.getOrCreate().read.parquet(
        *(file if "://" in file else f"file://{(base / file).absolute()}" for file in job.data.files)
    )
    released = spark.release(
        frame,
        domain(job, base),
        mechanism(job),
        epsilon=job.budget.epsilon,
        unit=unit(job),
        ledger=book,
        columns=_columns(job),
        work=base / part.work,
        weight=job.data.weight,
        data=job.data.name,
        key=_sampling_key(job),
        partitions=part.partitions,
    )
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
    faults: list[str] = []
    parts: dict[str, Any] = {}
    for name, make in (("domain", lambda job: domain(job, path.parent)), ("unit", unit), ("mechanism", mechanism)):
        try:
            parts[name] = make(job)
        except KasuriError as error:
            faults += [f"{path}: {fault}" for fault in error.faults]
    if len(parts) == 3:
        try:
            _judge_recipe(job, parts["mechanism"], parts["domain"], parts["unit"])
        except KasuriError as error:
            faults += [f"{path}: {fault}" for fault in error.faults]
    if (path.parent / job.output.folder).exists():
        faults.append(f"{path}: output.folder exists; a release is never written over another")
    if "domain" in parts:
        found = export_faults(parts["domain"], _exports(job, path.parent), job.output.levels)
        faults += [f"{path}: {fault}" for fault in found]
    if "domain" in parts and "unit" in parts and job.spark is None:  # the rows of a cluster are not read here
        faults += _data_faults(job, path.parent, parts["domain"], parts["unit"], outside)
    return faults


def _data_faults(job: Job, base: Path, table: Domain, who: Unit, outside: bool) -> list[str]:
    faults: list[str] = []
    records = []
    if job.data.kind == "table":
        for source in _sources(job, base):
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

    columns = _columns(job)
    found = axes.place_faults(stream.names, table, columns, stream.label)
    if job.data.weight is not None and job.data.weight not in stream.names:
        found.append(f"{stream.label}: no column {job.data.weight!r}; the columns are {list(stream.names)}")
    if job.data.weight is not None and who.max_weight is None:
        found.append(f"{stream.label}: unit.max_weight must bound the weights of records")
    if found:
        return found
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
        report(ids.is_null().to_numpy(zero_copy_only=False), who.id, "the id is missing or not UTF-8")
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
files = ["census.csv"]            # CSV (UTF-8) or Parquet; or: database = "x.duckdb" and query = "SELECT ..."
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

[recipe]
name = "haar_topdown"

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
