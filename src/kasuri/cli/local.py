"""kasuri local: plan a collection, randomise, collect, estimate."""

from __future__ import annotations

import csv
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import typer

from kasuri import files, names
from kasuri.cli import show
from kasuri.errors import DomainError, FormatError, PrivacyError

if TYPE_CHECKING:
    from kasuri.local import Estimate, Numeric, Randomizer, Round
    from kasuri.local.moments import Summary
    from kasuri.privacy import Guarantee
    from kasuri.schema import Mesh, Nominal, Ordered

app = typer.Typer(no_args_is_help=True, help="Local differential privacy: devices randomise, the collector never sees.")

LABELS = typer.Option(None, "--labels", help="Categories, separated by commas, or @file with one on each line.")
MESH = typer.Option(None, "--mesh", help="A mesh of ROWSxCOLS cells, e.g. 32x32.")
SIZE = typer.Option(None, "--categories", min=1, help="A number of categories without names.")
EPSILON = typer.Option(..., "--epsilon", help='What one person may spend in all, e.g. "1"; above 20: "25 weak".')


def _places(labels: str | None, mesh: str | None, size: int | None) -> Mesh | Nominal | Ordered:
    import kasuri as ks

    if sum(choice is not None for choice in (labels, mesh, size)) != 1:
        raise typer.BadParameter("give one of --labels, --mesh, --categories: places are declared, not read from data")
    if labels is not None:
        given = (
            Path(labels[1:]).read_text(encoding="utf-8").split("\n") if labels.startswith("@") else labels.split(",")
        )
        return ks.Nominal("place", labels=tuple(name.strip() for name in given if name.strip()))
    if mesh is not None:
        try:
            rows, cols = (int(part) for part in mesh.lower().split("x"))
        except ValueError:
            raise typer.BadParameter("--mesh is ROWSxCOLS, e.g. 32x32") from None
        return ks.Mesh("grid", shape=(rows, cols))
    assert size is not None
    return ks.Ordered("place", size)


@app.command()
def plan(
    users: int = typer.Option(..., "--users", min=1, help="How many people will report."),
    epsilon: str = EPSILON,
    reports: int = typer.Option(1, "--reports", min=1, help="Fresh reports of one person: they share epsilon."),
    labels: str | None = LABELS,
    mesh: str | None = MESH,
    categories: int | None = SIZE,
    bounds: str | None = typer.Option(None, "--bounds", help="Numbers instead of places: LOW,HIGH, e.g. 0,100."),
    randomizer: str | None = typer.Option(
        None,
        "--randomizer",
        help="Your choice: unary, oue, grr, olh, hadamard, count_mean_sketch (or cms), memoised; of numbers "
        "two_point, piecewise, hybrid, square_wave; else all compared.",
    ),
    v_max: int | None = typer.Option(
        None, "--v-max", min=1, help="memoised: places, elsewhere included, that share epsilon for all reports."
    ),
    instant: str | None = typer.Option(None, "--epsilon-instant", help="memoised: what one copy tells of the kept."),
    elsewhere: bool = typer.Option(
        True, "--elsewhere/--no-elsewhere", help="A category for places outside; without it nobody may be there."
    ),
    save: Path | None = typer.Option(None, "--save", help="Write the chosen, or best, randomizer here as JSON."),
    as_json: bool = show.JSON,
) -> None:
    """Compare the randomizers before anyone is asked: standard error, bytes, loss. Reads no data.

    Example: kasuri local plan --users 1000000 --epsilon 1 --categories 23
    """
    from kasuri import local

    if bounds is not None:
        if (labels, mesh, categories, v_max, instant) != (None,) * 5 or not elsewhere or bounds.count(",") != 1:
            raise typer.BadParameter("--bounds is LOW,HIGH, and goes with none of the options of places")
        low, high = bounds.split(",")
        found = local.plan_numbers((low, high), users=users, epsilon=epsilon, reports=reports, randomizer=randomizer)
    else:
        found = local.plan(
            _places(labels, mesh, categories),
            users=users,
            epsilon=epsilon,
            reports=reports,
            randomizer=randomizer,
            elsewhere=elsewhere,
            v_max=v_max,
            epsilon_instant=instant,
        )
    if save is not None:
        files.write(save, json.dumps(found.best.randomizer.to_json(), ensure_ascii=False) + "\n")
    size = found.best.randomizer.size
    with_elsewhere = " ('elsewhere' included)" if elsewhere else ""
    told, second, digits = f"the mean of numbers in {bounds}", "in the middle", 4
    if bounds is None:
        told, second, digits = f"{size} categories{with_elsewhere}", "at 10 % share", 1
    lines = [
        f"{told}, {users} people, {reports} report(s) each",
        f"{'randomizer':20}{'std. error':>12}{second:>15}{'bytes':>7}{'epsilon of one':>16}",
    ]
    for option in found.options:
        lines.append(
            f"{option.randomizer.kind:20}{option.standard_error:12.{digits}f}{option.standard_error_share:15.{digits}f}"
            f"{option.bytes:7}{option.loss:16.6f}"
        )
    kind, claim = found.best.randomizer.kind, found.best.randomizer.guarantee(reports=reports)
    lines.append(f"{'best' if randomizer is None else 'chosen'}: {kind}; {claim.words()}")
    show.result(found.to_json(), "\n".join(lines), as_json)


def _randomizer(path: Path) -> Randomizer | Numeric:
    from kasuri import local

    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DomainError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise FormatError(f"{path.name} is not a JSON file") from None
    return local.from_json(data)


@app.command()
def randomize(
    source: Path = typer.Argument(..., help="CSV or Parquet with one row for each person."),
    column: str = typer.Option(..., "--column", help="The column of labels (cell numbers where there are none)."),
    randomizer: Path = typer.Option(..., "--randomizer", help="JSON of a randomizer (kasuri local plan --save)."),
    out: Path = typer.Option(..., "--out", help="Parquet file of reports to write."),
    as_json: bool = show.JSON,
) -> None:
    """Randomise a column as the devices would: for trials, and for data that leaves a trusted machine.

    Example: kasuri local randomize people.csv --column ward --randomizer rr.json --out reports.parquet
    """
    from kasuri import local
    from kasuri.ingest import read_table

    made = _randomizer(randomizer)
    numbers = isinstance(made, local.Numeric)
    table = read_table(source, text=[] if numbers else [column])
    if column not in table.column_names:
        raise DomainError(f"no column {column!r}; is there a header line?")
    values = table.column(column)
    if numbers and not str(values.type).startswith(("int", "uint", "float", "double")):
        raise DomainError(f"column {column!r} does not hold numbers")
    if not numbers and str(values.type).startswith(("int", "uint")):
        values = values.cast("string")  # a column holds labels; without labels these are the cells' numbers
    reports = made.randomize(values)
    rounded = local.Round.new(made, closes=(1 << 40) - 1)
    local.write_reports(out, reports, rounded)
    claim = made.guarantee()
    data = {"reports": len(reports), "out": str(out), "guarantee": claim.to_json()}
    show.result(data, f"{len(reports)} reports in {out}; each: {claim.words()}", as_json)


@app.command()
def estimate(
    reports: Path = typer.Argument(..., help="Parquet of reports (kasuri local randomize, or a collector's export)."),
    method: str = typer.Option("em", "--method", help="em, em_columns, projection or inversion."),
    prior: float | None = typer.Option(None, "--prior", help="Imaginary people spread evenly (Dirichlet), for em."),
    neighbours: float | None = typer.Option(None, "--neighbours", help="People by which cells side by side differ."),
    out: Path | None = typer.Option(None, "--out", help="Write the estimate as CSV."),
    delta: str | None = typer.Option(
        None, "--delta", help="Also state what the published estimate costs in the shuffle model at this delta."
    ),
    report: Path | None = typer.Option(None, "--report", help="Also write a one-file HTML report here."),
    as_json: bool = show.JSON,
) -> None:
    """Estimate people in each category, with 95 % intervals and a certificate of convergence.

    Example: kasuri local estimate reports.parquet --method em --out estimate.csv
    """
    from kasuri import local

    packed, rounded = local.read_reports(reports)
    if prior is not None and neighbours is not None:
        raise typer.BadParameter("give --prior or --neighbours, not both")
    if isinstance(rounded.randomizer, local.Numeric):
        if neighbours is not None or report is not None or method != "em":
            raise typer.BadParameter("numbers have one method, and neither --neighbours nor --report")
        given = local.Reports(packed, rounded.randomizer.fingerprint)
        each = rounded.reports_per_device
        numbers = local.summary(given, rounded.randomizer, reports_per_device=each, prior=prior or 0.0)
        _show_numbers(numbers, out, _central(rounded, len(packed), delta), as_json)
        return
    chosen = local.Dirichlet(prior) if prior is not None else local.Neighbours(neighbours) if neighbours else None
    found = local.estimate(
        packed,
        rounded.randomizer,
        method=cast(Any, method),
        reports_per_device=rounded.reports_per_device,
        prior=chosen,
    )
    central = _central(rounded, len(packed), delta)
    low, high = found.interval()
    rows = list(zip(found.labels, found.counts, found.standard_error, low, high, strict=True))
    lines = [f"{'category':16}{'people':>12}{'std. error':>12}{'95 % from':>12}{'to':>12}"]
    lines += [f"{label:16}{count:12.1f}{error:12.1f}{a:12.1f}{b:12.1f}" for label, count, error, a, b in rows]
    if out is not None:
        with files.whole(out) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["category", "people", "standard_error", "lower", "upper"])
            writer.writerows([names.cell(label), *(f"{number:.3f}" for number in numbers)] for label, *numbers in rows)
    if report is not None:
        from kasuri.report.local import estimate_page

        files.write(report, estimate_page(found.to_json(), rounded.randomizer.domain, reports.stem))
    state = "converged" if found.converged else "NOT converged"
    lines.append(f"{found.reports} reports, {found.method}: {state} ({found.passes} passes, gap {found.gap:.2g} nats)")
    _tell(found, lines, central, as_json)


def _central(rounded: Round, n: int, delta: str | None) -> Guarantee | None:
    """The shuffle-model claim, where the operator asks for it; a file does not tell that a round was closed early."""
    if delta is None:
        return None
    if time.time() < rounded.closes:
        raise PrivacyError(
            "no shuffle-model claim before the round closes: estimates before and after one report reveal that report. "
            "Ask the collector of a round that was closed early; else the local epsilon is what holds"
        )
    from kasuri.shuffle.rounds import central_claim

    return central_claim(rounded, n, delta)


def _show_numbers(found: Summary, out: Path | None, central: Guarantee | None, as_json: bool) -> None:
    histogram = zip(found.histogram.points, found.histogram.counts, strict=True)
    lines = [f"{'':10}{'estimate':>14}{'std. error':>12}{'95 % from':>14}{'to':>14}"]
    for name, moment in (("mean", found.mean), ("variance", found.variance)):
        if moment is not None:
            low, high = moment.interval()
            lines.append(f"{name:10}{moment.value:14.4f}{moment.standard_error:12.4f}{low:14.4f}{high:14.4f}")
    if out is not None:
        with files.whole(out) as part, part.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["number", "people"])
            writer.writerows([f"{x:.6g}", f"{count:.3f}"] for x, count in histogram)
    lines.append(f"{found.reports} reports of {found.randomizer.kind}")
    _tell(found, lines, central, as_json)


def _tell(found: Estimate | Summary, lines: list[str], central: Guarantee | None, as_json: bool) -> None:
    """Print an estimate and its claims; one that did not converge ends in exit code 1."""
    told = found.to_json()
    if central is not None:
        told["central"] = central.to_json()
        lines.append(f"to each device: {found.guarantee.words()}")
        lines.append(f"to the public, who sees the estimate alone (beside it, never instead): {central.words()}")
        lines.append(f"assumed: {'; '.join(central.assumes)}")
    show.result(told, "\n".join(lines), as_json)
    if not told["converged"]:
        raise typer.Exit(1)


@app.command()
def serve(
    folder: Path = typer.Argument(..., help="Folder of the collector: its store and its key; made where missing."),
    randomizer: Path | None = typer.Option(None, "--randomizer", help="Open a round with this randomizer (JSON)."),
    hours: float = typer.Option(24.0, "--hours", min=0.01, help="How long that round stays open."),
    reports: int = typer.Option(1, "--reports", min=1, help="How often one device may report in it."),
    tokens: bool = typer.Option(False, "--tokens", help="Ask every batch for a one-round token."),
    host: str = typer.Option("127.0.0.1", "--host"),
    port: int = typer.Option(8000, "--port", min=1, max=65535),
    as_json: bool = show.JSON,
) -> None:
    """Run the collector. The operator's token is read from KASURI_OPERATOR_TOKEN (16 characters or more).

    Example: KASURI_OPERATOR_TOKEN=$(openssl rand -hex 16) kasuri local serve collector --randomizer rr.json
    """
    import os
    import time

    from kasuri import local

    token = os.environ.get("KASURI_OPERATOR_TOKEN", "")
    if len(token) < 16:
        raise PrivacyError("set KASURI_OPERATOR_TOKEN to a secret of at least 16 characters")
    made = None if randomizer is None else _randomizer(randomizer)
    folder.mkdir(parents=True, exist_ok=True)
    key = local.CollectorKey.open(folder / "collector.key")
    store = local.Store(folder / "reports.db")
    data = {"url": f"http://{host}:{port}", "public_key": key.public}
    text = [
        f"collector: {data['url']}",
        f"status:    {data['url']}/status",
        f"demo page: {data['url']}/?key={key.public}",
    ]
    if made is not None:
        closes = int(time.time() + 3600 * hours)
        opened = store.open_round(local.Round.new(made, closes=closes, reports_per_device=reports, tokens=tokens))
        data["round"] = opened.round.id
        text.append(f"round:     {opened.round.id}, {made.guarantee(reports=reports).words()}")
    show.result(data, "\n".join(text), as_json)
    local.serve(store, key, operator_token=token, host=host, port=port)
