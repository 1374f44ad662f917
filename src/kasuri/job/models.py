"""The tables of a job file, checked for form: what keys there are, what they hold, which go together."""

from __future__ import annotations

from datetime import date
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from kasuri.job.axes import AnyAxis
from kasuri.job.parameters import Columns, Exact, File, Part, PublicFile, Recipe, model
from kasuri.recipes import RECIPES

if TYPE_CHECKING:
    AnyRecipe = Recipe
else:
    AnyRecipe = Annotated[reduce(or_, map(model, RECIPES)), Field(discriminator="name")]


class ConditionPart(Part):
    """One condition on a stored column: `column` `op` `value`; "is null" and "is not null" take no value."""

    column: str
    op: Literal["=", "<>", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]
    value: bool | int | float | str | list[bool | int | float | str] | None = Field(
        None, description='A number, a text, true or false; after "in" and "not in" a list of them.'
    )

    def words(self) -> tuple[Any, ...]:
        return (self.column, self.op) if self.value is None else (self.column, self.op, self.value)


class MeltPart(Part):
    """Columns of a wide table that become rows: one column per age group, for example."""

    into: str | list[str] = Field(description='New column of labels, or several: "age", ["sex", "age"].')
    value: str = Field(description="New column of the numbers in the listed columns.")
    columns: list[str] | dict[str, str | list[str]] = Field(
        description="The columns, where their names are the labels; or column -> label, or a label for each of into."
    )

    def words(self) -> tuple[Any, ...]:
        into = (self.into,) if isinstance(self.into, str) else tuple(self.into)
        given = self.columns if isinstance(self.columns, dict) else {name: name for name in self.columns}
        return into, self.value, {n: (own,) if isinstance(own, str) else tuple(own) for n, own in given.items()}


class Data(Part):
    """Where the rows are: `files`, or `database` with `table` (and `where`) or with `query`."""

    name: str = Field(description='Declared name of the data, e.g. "census-2020".')
    kind: Literal["table", "estat"] = Field("table", description="table: files or a database. estat: e-Stat files.")
    files: list[File] = Field(default_factory=list, description="Files, relative to this job file.")
    encoding: str | None = Field(
        None, description="Of CSV files: utf-8, cp932, utf-16, cp1252; else found by the header line."
    )
    sheet: str | None = Field(None, description="The sheet of an .xlsx file, where several have cells.")
    melt: MeltPart | None = Field(None, description="Columns of a wide table that become rows.")
    sum: bool | str = Field(
        False,
        description="true: rows of one cell are added; without it a table has one row per cell. Or a column of whole "
        "numbers: its sums are published instead of counts, bounded by max_sum of the unit.",
    )
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
        if (self.encoding or self.sheet or self.melt) and (not self.files or self.kind == "estat"):
            raise ValueError("encoding, sheet and melt go with files of kind table")
        return self


class MaskPart(Part):
    """A public file of impossible cells, such as the sea."""

    axes: list[str] = Field(min_length=1, description="The axes it is over, in the order of the array's dimensions.")
    file: File = Field(description="A .npy array of true (nobody can be there) and false, relative to this job file.")


class MapPart(Part):
    """A public map from the cells of an axis to regions, which areas and levels can then be asked for by."""

    file: File = Field(description="A .json file of `kasuri geography match`, relative to this job file.")


class UnitPart(Part):
    id: str = Field(description="The id column: who is protected.")
    change: Literal["add-remove", "replace"]
    max_cells: int
    max_weight: int | None = None
    per: Literal["slot"] | None = Field(None, description='"slot": all of that in each slot of a series.')
    max_sum: int | None = Field(None, description="Most that one unit's amounts add up to in a cell; with data.sum.")


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
    exports: list[File] = Field(
        default_factory=list, description=".csv .xlsx .parquet .gpkg .sqlite .duckdb, postgresql://"
    )
    levels: list[str] = Field(
        default_factory=list, description="Coarser levels, or those of the places of a map, to add to the exports."
    )


class AboutPart(Part):
    """What readers are told of the release: on its report, certificates, manifest and exports."""

    title: str = Field("", description="What the release shows, in a sentence.")
    title_en: str = Field("", description="The title on English pages, where it is in another language.")
    title_ja: str = Field("", description="The title on Japanese pages, where it is in another language.")
    publisher: str = Field("", description="Who publishes it.")
    contact: str = Field("", description="Where questions go.")
    source: str = Field("", description="The credit that the source of the data asks for.")
    licence: str = Field("", description="What others may do with it.")
    published: date | str = Field("", description="The day of publication, e.g. 2026-11-18.")
    language: str = Field("", description='The language these words are in, e.g. "en" or "ja".')

    def words(self) -> dict[str, str]:
        """What is said, as `release` takes it."""
        return {name: str(value) for name, value in self if value}


class CriterionPart(Part):
    """Of the areas that hold more than `people`, at least the share `share` is within `within` of the truth."""

    areas: int | str = Field(description='A number of cells, or a view: "grid@3", "age, sex", the name of a map.')
    people: int = Field(ge=1, description="Areas that hold more are judged.")
    within: Exact = Field(description='Of the truth, e.g. "5 %".')
    share: Exact = Field(description='Of these areas, e.g. "95 %".')


class AcceptancePart(Part):
    """What the release must be expected to reach, judged before the data is read; else nothing is charged."""

    criteria: list[CriterionPart] = Field(min_length=1)
    on: PublicFile | None = Field(None, description="A public table to judge on, where no closed form tells.")
    trials: int = Field(20, ge=2, description="Simulated releases of the public table.")


class SparkPart(Part):
    """How a job with engine = "spark" runs; the session itself is configured as Spark's own are."""

    work: File = Field(
        description="A folder that driver and executors share; private folders are made and removed there."
    )
    partitions: int | None = Field(None, ge=1, description="Tasks per shuffle; the result does not depend on it.")


class SeriesPart(Part):
    """Tables slot after slot. budget.epsilon is then about one unit's records in any window; in [data] and in
    output.exports {start}, {end}, {local_start}, {local_end}, {date}, {hour} and {minute} stand for the slot."""

    window: str = Field(description='What a unit is protected over, sliding, e.g. "7d".')
    slot: str = Field(description='Length of a slot, e.g. "1h".')
    zone: str = Field(description='Fixed offset of all times, e.g. "+09:00".')
    start: str = Field(description="Start of the first slot, with its zone.")
    delta: Exact = Field(description='Of the window, an exact decimal in quotes, e.g. "1e-9".')
    aside: Exact | None = Field(None, description="Part of epsilon kept for other releases of the same data.")
    off: list[str] = Field(default_factory=lambda: ["sat", "sun"], description="Days of the week that are off.")
    days_off: list[date] = Field(default_factory=list, description="Further days off, from a public calendar.")
    season: int | None = Field(None, description="Slots of a season, where it is not a day.")
    wait: int = Field(0, ge=0, description="Minutes after its end at which a slot's rows are there.")


class Job(Part):
    """A job file, read and checked for form; `domain`, `unit` and `mechanism` check its facts."""

    engine: Literal["local", "spark"] = Field("local", description="Where it runs: this machine, or a Spark cluster.")
    data: Data
    axes: list[AnyAxis] = Field(min_length=1)
    masks: list[MaskPart] = Field(default_factory=list)
    maps: list[MapPart] = Field(default_factory=list)
    unit: UnitPart
    recipe: AnyRecipe = model("best")(name="best")
    budget: Budget
    output: Output
    about: AboutPart | None = None
    acceptance: AcceptancePart | None = None
    series: SeriesPart | None = None
    spark: SparkPart | None = None

    @model_validator(mode="before")
    @classmethod
    def _spark_default(cls, content: Any) -> Any:
        """What a job file for a cluster has always meant where it names no recipe."""
        if isinstance(content, dict) and content.get("engine") == "spark" and "recipe" not in content:
            return content | {"recipe": {"name": "haar_topdown"}}
        return content

    @model_validator(mode="after")
    def _series_can(self) -> Job:
        if (self.series is not None) != (self.unit.per == "slot"):
            raise ValueError('the table [series] and unit.per = "slot" go together')
        if self.series is not None and (self.spark is not None or self.budget.ledger is None):
            raise ValueError("a series runs on this machine and is paid by a ledger")
        if self.series is not None and self.acceptance is not None:
            raise ValueError("acceptance is judged for single releases; a series has kasuri ledger plan")
        return self

    @model_validator(mode="after")
    def _spark_can(self) -> Job:
        if (self.engine == "spark") != (self.spark is not None):
            raise ValueError('engine = "spark" and the table [spark] (work = FOLDER) go together')
        if self.spark is None:
            return self
        faults = []
        if self.data.kind != "table" or not all(file.lower().endswith((".parquet", "/")) for file in self.data.files):
            faults.append("data.files are Parquet files or folders (ending in /)")
        if self.data.melt or self.data.sum:
            faults.append("melt and sum are not done; make the table long before")
        if not self.data.files:
            faults.append("data comes from files, not from a query")
        if self.output.exports:
            faults.append("output.exports must be empty; other tools read the saved Parquet files")
        if faults:
            raise ValueError(f'with engine = "spark": {"; ".join(faults)}')
        return self
