"""kasuri kanon hierarchy | anonymize | audit."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from kasuri import files

app = typer.Typer(help="k-anonymity: check hierarchies, anonymise, audit.", no_args_is_help=True)

Spec = Annotated[Path, typer.Argument(help="Recoding file (TOML).", show_default=False)]
Data = Annotated[Path, typer.Argument(help="Table: .csv or .parquet.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Report = Annotated[Path | None, typer.Option("--report", help="Also write a one-file HTML report here.")]


class Method(StrEnum):
    """Ways to anonymise."""

    specialize = "specialize"
    mondrian = "mondrian"
    pk = "pk"
    sample = "sample"


@app.command()
def hierarchy(
    spec: Spec,
    data: Annotated[Path | None, typer.Argument(help="Check that every row of this table is covered.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Folder for one ARX hierarchy file per attribute.")] = None,
    as_json: Json = False,
) -> None:
    """Show the trees of a recoding; check that they cover a table; export them for ARX.

    Example: kasuri kanon hierarchy adult.toml adult.csv
    """
    from kasuri.kanon import Recoding
    from kasuri.kanon.recoding import encode

    recoding = Recoding.load(spec)
    if data is not None:
        encode(_read(data, recoding), recoding, file=str(data))
    if csv is not None:
        csv.mkdir(parents=True, exist_ok=True)
        for tree in recoding.attributes:
            tree.save_csv(csv / f"{tree.name}.csv")
    if as_json:
        sensitive = {column.name: column.order for column in recoding.sensitive}
        _print({"attributes": [tree.to_json() for tree in recoding.attributes], "sensitive": sensitive})
        return
    for tree in recoding.attributes:
        typer.echo(f"{tree.name}: {tree.kind}, {tree.leaves} leaves, {int(tree.depth.max())} levels below the root")
        for node, depth in list(enumerate(tree.depth.tolist()))[:200]:
            typer.echo(f"  {'  ' * depth}{tree.labels[node]}")
        if len(tree.labels) > 200:
            typer.echo(f"  and {len(tree.labels) - 200} more nodes")
    if data is not None:
        typer.echo(f"{data}: every row is covered")


@app.command()
def anonymize(
    data: Data,
    spec: Spec,
    k: Annotated[int, typer.Option("--k", help="Rows every class must have.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write: .csv or .parquet.")],
    method: Annotated[Method, typer.Option(help="How.")] = Method.specialize,
    suppression: Annotated[str, typer.Option(help="specialize: share of rows that may be left out.")] = "0",
    l_diversity: Annotated[int | None, typer.Option(help="Distinct sensitive values per class.")] = None,
    t_closeness: Annotated[str | None, typer.Option(help="Largest distance of a class's distribution.")] = None,
    cut: Annotated[list[str] | None, typer.Option(help="sample: attribute=depth, once per attribute.")] = None,
    sampling_rate: Annotated[str | None, typer.Option(help="sample: share of units kept.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="sample: epsilon, an exact decimal.")] = None,
    delta: Annotated[str | None, typer.Option(help="sample: largest delta, an exact decimal.")] = None,
    unit: Annotated[str | None, typer.Option(help="sample: the id column, or what one row is.")] = None,
    rows_are_units: Annotated[
        bool, typer.Option("--rows-are-units", help="sample: there is no id column; every row is a unit of its own.")
    ] = False,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Anonymise a table. Only --method sample (and pk, in its own sense) gives a privacy guarantee.

    Example: kasuri kanon anonymize adult.csv adult.toml --k 10 --out anonymous.csv
    """
    from kasuri import kanon
    from kasuri.kanon.anonymized import checked_path
    from kasuri.report.kanon import release_page

    recoding = kanon.Recoding.load(spec)
    sampled = {"--cut": cut, "--sampling-rate": sampling_rate, "--epsilon": epsilon, "--delta": delta, "--unit": unit}
    _options(method, sampled, suppression, l_diversity, t_closeness)
    if rows_are_units and method is not Method.sample:
        raise typer.BadParameter("--rows-are-units belongs to --method sample")
    checked_path(out)  # before anything is drawn: a sample that cannot be written must not be drawn again
    _check_report(report)
    rows = _read(data, recoding, unit if method is Method.sample else None)
    if method is Method.specialize:
        release = kanon.specialize(
            rows, recoding, k=k, l_diversity=l_diversity, t_closeness=t_closeness, suppression=suppression
        )
    elif method is Method.mondrian:
        release = kanon.mondrian(rows, recoding, k=k, l_diversity=l_diversity, t_closeness=t_closeness)
    elif method is Method.pk:
        randomized = kanon.pk_anonymize(rows, recoding, k=k)
        release = randomized.release
    else:
        release = _sample(rows, recoding, k, cut or [], sampling_rate, epsilon, delta, unit, rows_are_units)
    release.save(out)
    facts = release.to_json()
    if method is Method.pk:
        facts |= randomized.to_json()
    if report is not None:
        cuts = release.cut or [None] * len(recoding.attributes)
        trees = [tree.to_json(cut) for tree, cut in zip(recoding.attributes, cuts, strict=True)]
        files.write(report, release_page(facts, trees))
    if as_json:
        _print({**facts, "out": str(out)})
        return
    typer.echo(f"{out}: {release.rows} rows in {facts['classes']} classes, the smallest of {facts['k']}")
    hidden = "" if release.suppressed is None else f"; {release.suppressed} rows suppressed"
    typer.echo(f"loss of detail (NCP) {release.ncp_share:.4f} of 1{hidden}")
    typer.echo(facts["words"])
    if release.guarantee is not None:
        typer.echo("assumes: " + "; ".join(release.guarantee.assumes))


@app.command()
def audit(
    data: Data,
    spec: Spec,
    k: Annotated[int, typer.Option("--k", help="The k asked for.")],
    sampling_rate: Annotated[str, typer.Option(help="Share of rows sampled, between 0 and 1.")],
    release: Annotated[Path | None, typer.Option(help="A release made elsewhere from a sample of the table.")] = None,
    report: Report = None,
    as_json: Json = False,
) -> None:
    """Audit k-anonymisation of a table. The output is confidential: it is computed from the original rows.

    Example: kasuri kanon audit adult.csv adult.toml --k 10 --sampling-rate 0.2 --report audit.html
    """
    from kasuri import kanon
    from kasuri.report.kanon import audit_page

    recoding = kanon.Recoding.load(spec)
    _check_report(report)
    other = None if release is None else _read(release, recoding)
    found = kanon.audit(_read(data, recoding), recoding, k=k, sampling_rate=sampling_rate, release=other)
    if report is not None:
        cuts = found.release.cut if found.release is not None and found.release.cut is not None else ()
        trees = [tree.to_json(cut) for tree, cut in zip(recoding.attributes, cuts, strict=False)]
        files.write(report, audit_page(found.to_json(), trees))
    if as_json:
        _print(found.to_json())
    else:
        typer.echo(found.text())


def _options(
    method: Method, sampled: dict[str, Any], suppression: str, l_diversity: int | None, t_closeness: str | None
) -> None:
    """Refuse options that the method would silently ignore, and name those it lacks; all at once."""
    faults = []
    if method is Method.sample:
        faults += [f"--method sample needs {name}" for name, value in sampled.items() if not value]
    else:
        faults += [f"{name} belongs to --method sample" for name, value in sampled.items() if value]
    if method is not Method.specialize and suppression != "0":
        faults.append("--suppression belongs to --method specialize")
    if method in (Method.pk, Method.sample) and (l_diversity is not None or t_closeness is not None):
        faults.append("--l-diversity and --t-closeness belong to --method specialize and mondrian")
    if faults:
        raise typer.BadParameter("; ".join(faults))


def _sample(
    rows: Any,
    recoding: Any,
    k: int,
    cut: list[str],
    sampling_rate: str | None,
    epsilon: Any,  # None is refused with the other faults
    delta: str | None,
    unit: str | None,
    rows_are_units: bool,
) -> Any:
    from kasuri import Unit, kanon

    depths: dict[str, Any] = {}
    for item in cut:
        name, _, depth = item.partition("=")
        if not (depth.isascii() and depth.isdigit() and len(depth) < 10):
            raise typer.BadParameter("--cut reads attribute=depth, e.g. age=2")
        depths[name] = int(depth)
    return kanon.sample_then_anonymize(
        rows,
        recoding,
        cut=depths,
        k=k,
        sampling_rate=sampling_rate,
        epsilon=epsilon,
        delta=delta,
        unit=Unit(id=unit or "", change="add-remove", max_cells=1),
        rows_are_units=rows_are_units,
    )


def _read(path: Path, recoding: Any, unit: str | None = None) -> Any:
    """The table, quasi-identifiers as text, so that a cell is read in the same way whatever the others hold. With
    `unit` they and the ids are all that is read: no other record can then change or stop a release of this one."""
    from kasuri.ingest import read_table

    return read_table(path, text=[*recoding.names, *([unit] if unit else [])], only=unit is not None)


def _check_report(path: Path | None) -> None:
    from kasuri.errors import DomainError

    if path is not None and (not path.parent.is_dir() or path.is_dir()):
        raise DomainError(f"{path}: the report needs a file name in a folder that is there")


def _print(data: Any) -> None:
    typer.echo(json.dumps(data, ensure_ascii=False, indent=1))
