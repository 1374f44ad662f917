"""The options that say which table: shared by release, plan and compare, and what they come to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption

Epsilons = Annotated[str | None, typer.Option("--epsilons", help='Exact decimals, e.g. "0.1,1".')]
UnitId = Annotated[
    str | None, typer.Option("--unit", help="Who is protected, e.g. person: the id column, where there are records.")
]
Change = Annotated[str | None, typer.Option("--change", help="add-remove or replace.")]
MaxCells = Annotated[int | None, typer.Option("--max-cells", help="In how many cells one unit can be counted.")]
MaxWeight = Annotated[int | None, typer.Option("--max-weight", help="Bound of the weights of records.")]
Count = Annotated[str | None, typer.Option("--count", help="Column of counts (or of weights, in records).")]
Window = Annotated[
    str | None, typer.Option("--window", help="Public window: japan, kanto, ... or a mesh such as 5339.")
]
Level = Annotated[
    str | None,
    typer.Option(
        "--level",
        help="Mesh level: 80km, 10km, 5km, 2km, 1km, 500m, 250m, 125m. Default: 500m; none with --row, --col and "
        "--origin: a plain grid, without mesh codes or a place on the map.",
    ),
]
Origin = Annotated[str | None, typer.Option("--origin", help="ROW,COL of the south-west cell, instead of --window.")]
Shape = Annotated[str | None, typer.Option("--shape", help="ROWS,COLS, with --origin.")]
Mask = Annotated[Path | None, typer.Option("--mask", help="Public .npy array of the window, true where nobody can be.")]
Code = Annotated[str | None, typer.Option("--code", help="Column of mesh codes.")]
Row = Annotated[str | None, typer.Option("--row", help="Column of grid rows (with --col, instead of --code).")]
Col = Annotated[str | None, typer.Option("--col", help="Column of grid columns.")]
Lat = Annotated[str | None, typer.Option("--lat", help="Column of latitudes (with --lon, instead of --code).")]
Lon = Annotated[str | None, typer.Option("--lon", help="Column of longitudes.")]
Axes = Annotated[
    list[str] | None,
    typer.Option(
        "--axis",
        help="A further axis (or, without --window, one of all axes), NAME=KIND(...): 'sex=nominal(f,m)', "
        "'ward=nominal(east(a,b),west(c))' with a tree, 'ward=nominal(@wards.csv)' from a public file (columns code, "
        "parent), 'age=ordered(18)', 'age=ordered(young,old)', 'hour=time(2020-10-01T00:00,3600,24)', "
        "'home=mesh(kanto)'; or with the keys of a job file. Repeatable.",
    ),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="NAME=COLUMN of an --axis, where it is not called so; NAME=ROW,COL of a mesh; NAME=lat:COLUMN,lon:COLUMN "
        "of points. Repeatable.",
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Of a CSV file: utf-8, cp932, utf-16, cp1252 (else by its header line)."),
]
Sheet = Annotated[str | None, typer.Option("--sheet", help="Sheet of an .xlsx file, where several have cells.")]
Add = Annotated[bool, typer.Option("--sum", help="Add the rows of one cell; else a table has one row per cell.")]
Recipe = Annotated[
    str,
    typer.Option(
        "--recipe",
        help="{recipes}; arguments in brackets, in TOML: 'bayes_tree(pilot=true)'.",
    ),
]
Recipes = Annotated[
    str | None,
    typer.Option(
        "--recipes", help="Recipes with their arguments: 'geometric, refined_tree(shares=\"u4\"), auto(areas=[1, 64])'."
    ),
]
Figure = Annotated[Path | None, typer.Option("--figure", help="Also draw a chart: x.png, x.svg or x.pdf.")]


class NamesRecipes(TyperCommand):
    """A command whose help names every recipe: they are imported when it is asked for help, and not before."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        import kasuri as ks

        *names, last = ks.recipes.RECIPES
        for option in self.params:
            if isinstance(option, TyperOption) and option.help:
                option.help = option.help.replace("{recipes}", f"{', '.join(names)} or {last}")
        super().format_options(ctx, formatter)


@dataclass(frozen=True)
class Asked:
    """The table a command is about, as options or a job file tell it. `read` counts its data, where there is any, and
    `sources` say where that is; `epsilon`, `recipe` and what it asks of its release, `judged`, are a job's own."""

    domain: Any
    unit: Any
    read: Callable[..., Any] | None = None
    sources: Sequence[Any] = ()
    columns: Mapping[str, Any] | None = None
    value: str | None = None
    data: str | None = None
    epsilon: str | None = None
    recipe: Any = None
    judged: Callable[[], Any] | None = None

    def recipes(self, text: str, option: str = "--recipes") -> list[Any]:
        """Recipes by name and arguments. A public table has the same columns as the data unless the recipe says
        otherwise, and is not the confidential table itself."""
        from kasuri.errors import KasuriError
        from kasuri.job.parameters import parse, refuse_public, split

        out, faults = [], list[str]()
        for part in split(text):
            try:
                found = parse(part)
                refuse_public(found.public, self.data, self.sources, Path())
                out.append(found.mechanism(Path(), self.domain, self.columns, self.value))
            except KasuriError as error:
                faults += error.faults
        if faults:
            raise typer.BadParameter("\n".join(faults), param_hint=option)
        return out

    def one_recipe(self, text: str) -> Any:
        """The one recipe of a command that takes one."""
        found = self.recipes(text, "--recipe")
        if len(found) > 1:
            raise typer.BadParameter("one recipe is needed", param_hint="--recipe")
        return found[0]


def asked(context: typer.Context, table: Path | None, *also: str) -> Asked:
    """What the options of a command ask for, about the data `table` (None: no data is touched). Options named in `also`
    have no default either."""
    import kasuri as ks
    from kasuri.ingest import File

    given = context.params
    missing = [name for name in (*also, "unit", "change", "max_cells") if given[name] is None]
    if missing:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise typer.BadParameter(f"missing: {words} (none has a default); or give a job file")
    # codes and coordinates say where on earth they are; rows and columns do not, until someone declares it
    plain = given.get("row") is not None and given["window"] is None
    level = given["level"] or (None if plain else "500m")
    domain = _domain(given, level, [] if table is None else [table])
    unit = ks.Unit(*(given[name] for name in ("unit", "change", "max_cells", "max_weight")))
    if table is None:
        return Asked(domain, unit)
    columns = _columns(given, [axis.name for axis in domain.axes])
    value, data = given["count"], given.get("data")
    source, add = File([table], given["encoding"], given["sheet"]), given["add"]

    def read(**further: Any) -> Any:
        return ks.count(source, domain, columns=columns, unit=unit, weight=value, data=data, sum=add, **further)

    return Asked(domain, unit, read, [table], columns, value, data)


def asked_by_job(context: typer.Context, path: Path, *also: str) -> Asked:
    """What a job file asks for; of the options only those named in `also` go with it."""
    from kasuri import job

    alone(context, *also)
    work, base = job.load(path), path.parent
    domain = job.domain(work, base)
    recipe = job.mechanism(work, base, domain)

    def read(progress: Any = None) -> Any:
        return job.counts(work, base, progress)

    return Asked(
        domain, job.unit(work), read, job.sources(work, base), *job.public_columns(work),
        data=work.data.name, epsilon=work.budget.epsilon, recipe=recipe,
        judged=lambda: job.judge_criteria(work, base, recipe, domain, job.unit(work)),
    )  # fmt: skip


def alone(context: typer.Context, *also: str) -> None:
    """Refuse options beside a job file, which says everything itself, but for those named in `also`."""
    for name in context.params:
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE" and name not in also:
            words = ", ".join("--json" if word == "as_json" else f"--{word.replace('_', '-')}" for word in also[1:])
            raise typer.BadParameter(f"a job file says everything itself; only {words} go with it")


def _windowed(given: Mapping[str, Any]) -> bool:
    """Is there a grid? Where no axis is given there must be."""
    return not given["axis"] or any(given[name] is not None for name in ("window", "origin", "shape"))


def _domain(given: Mapping[str, Any], level: str | None, sources: Sequence[Path]) -> Any:
    """The public window without the cells of a public .npy array, and the further axes, none of which is read from a
    confidential source."""
    import kasuri as ks
    from kasuri.ingest import read_array

    mask, window = given["mask"], _windowed(given)
    mesh = [_mesh(given["window"], level, given["origin"], given["shape"])] if window else []
    made, faults = _axes(given["axis"] or (), sources)
    if faults:
        raise typer.BadParameter("\n".join(faults), param_hint="--axis")
    if mask is not None and not window:
        raise typer.BadParameter("the mask is of a window: give --window too, or a job file", param_hint="--mask")
    try:
        return ks.Domain.of(*mesh, *made, mask=None if mask is None else {"grid": read_array(mask)})
    except ks.DomainError as error:
        raise typer.BadParameter(str(error), param_hint="--axis" if mask is None else "--mask") from None


def _axes(texts: Sequence[str], sources: Sequence[Path]) -> tuple[list[Any], list[str]]:
    """The axes that are written so, and every fault."""
    if not texts:  # the models of axes are not needed
        return [], []
    from kasuri.errors import KasuriError
    from kasuri.job.axes import not_public, parse

    made, faults = [], list[str]()
    for text in texts:
        try:
            part = parse(text)
            secret = not_public(part, sources, Path())
            faults += secret
            if not secret:  # a confidential file is not opened
                made.append(part.make(Path()))
        except KasuriError as error:
            faults += error.faults
    return made, faults


def _mesh(window: str | None, level: str | None, origin: str | None, shape: str | None) -> Any:
    from kasuri.errors import DomainError
    from kasuri.schema import WINDOWS, Mesh

    try:
        if window is not None:
            if origin or shape:
                raise typer.BadParameter("give --window, or --origin and --shape, not both")
            return Mesh.window("grid", window, level=level or "500m")
        if origin is None or shape is None:
            known = "; ".join(f"{name} ({own}, origin {at}, shape {size})" for name, (own, at, size) in WINDOWS.items())
            raise typer.BadParameter(
                f"the public window is missing: give --window NAME or --origin ROW,COL --shape ROWS,COLS. "
                f"Windows: {known}; or a first-order mesh such as 5339. It is never taken from the file."
            )
        return Mesh("grid", level, _pair(origin, "--origin"), shape=_pair(shape, "--shape"))
    except DomainError as error:
        raise typer.BadParameter(str(error)) from None


def _pair(text: str, option: str) -> tuple[int, int]:
    try:
        first, second = (int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter("two whole numbers such as 8400,6080 are needed", param_hint=option) from None
    return first, second


def _columns(given: Mapping[str, Any], axes: Sequence[str]) -> dict[str, Any]:
    """Where the axes are."""
    code, row, col, lat, lon = (given[name] for name in ("code", "row", "col", "lat", "lon"))
    said = [name is not None for name in (code, row, col, lat, lon)]
    own = axes[1:] if _windowed(given) else axes
    out: dict[str, Any] = {name: name for name in own}
    for text in given["column"] or ():
        name, equals, columns = text.partition("=")
        if not equals or name not in own:
            known = ", ".join(own) or "none is given"
            raise typer.BadParameter(f"{text!r}: NAME=COLUMN of an --axis is needed ({known})", param_hint="--column")
        points = re.fullmatch("lat:(.+),lon:(.+)", columns)
        whole = tuple(columns.split(",")) if "," in columns else columns
        out[name] = {"lat": points[1], "lon": points[2]} if points else whole
    if not _windowed(given):
        if any(said):
            raise typer.BadParameter("--code, --row, --col, --lat and --lon go with a window: give --window too")
        return out
    if said == [True, False, False, False, False]:
        return {"grid": code, **out}
    if said == [False, True, True, False, False]:
        return {"grid": (row, col), **out}
    if said == [False, False, False, True, True]:
        return {"grid": {"lat": lat, "lon": lon}, **out}
    raise typer.BadParameter("say which column holds the cell: --code COLUMN, or --row and --col, or --lat and --lon")
