"""kasuri shuffle: two organisations join their tables; only files pass between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import typer

from kasuri import files, names
from kasuri.cli import show
from kasuri.errors import DomainError, NumericsError, raise_faults

app = typer.Typer(no_args_is_help=True, help="Two organisations join their tables in the shuffle model.")

PLAN = typer.Option(..., "--plan", help="The plan file; both sides have the same.")
REPORT = typer.Option(None, "--report", help="Also write a one-file HTML report here: all estimates and the guarantee.")
SIDE = typer.Option(..., "--side", help="a or b: which organisation you are.")


def _columns(words: list[str]) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    names, bounds, categories = [], {}, {}
    for word in words:
        if "=" in word:
            name, labels = word.split("=", 1)
            categories[name] = tuple(label.strip() for label in labels.split(","))
        else:
            parts = word.rsplit(":", 2)
            if len(parts) != 3:
                raise typer.BadParameter("a column is name:low:high (a number) or name=label,label (a category)")
            name = parts[0]
            bounds[name] = (parts[1], parts[2])
        names.append(name)
    return names, bounds, categories


def _pairs(words: list[str], what: str) -> dict[str, str]:
    for word in words:
        if "=" not in word:
            raise typer.BadParameter(f"{what} is column=value")
    return dict(word.split("=", 1) for word in words)


def _two(words: dict[str, str]) -> dict[str, tuple[str, str]]:
    out = {}
    for name, word in words.items():
        a, _, b = word.partition(",")
        if not a or not b:
            raise typer.BadParameter("--ab is column=a,b")
        out[name] = (a.strip(), b.strip())
    return out


@app.command()
def plan(
    out: Path = typer.Argument(..., help="The plan file to write (JSON)."),
    key: str = typer.Option(..., "--key", help="The joining column."),
    a: list[str] = typer.Option(..., "--a", help="A column of side a: name:low:high or name=label,label."),
    b: list[str] = typer.Option(..., "--b", help="A column of side b."),
    epsilon_each: str | None = typer.Option(None, "--epsilon-each", help="Local epsilon of every column."),
    epsilon: list[str] = typer.Option([], "--epsilon", help="column=epsilon, for one column."),
    mechanism: list[str] = typer.Option(
        [],
        "--mechanism",
        help="column=piecewise (default), hybrid, coin, two_point, laplace; grr (default) or one_hot.",
    ),
    ab: list[str] = typer.Option([], "--ab", help="column=a,b: the pair of Kii's Algorithm 3, of a two_point column."),
    k: int | None = typer.Option(
        None, "--k", help="In place of --epsilon-each: the largest epsilon at which the joined rows are Pk-anonymous."
    ),
    delta: str = typer.Option(..., "--delta", help='Delta of the joined rows, e.g. "1e-8".'),
    minimum_overlap: int = typer.Option(1000, "--minimum-overlap", help="Fewer joined rows are refused."),
    outside: str = typer.Option("refuse", "--outside", help="refuse or clip numbers outside their bounds."),
    trusted_joiner: str | None = typer.Option(None, "--trusted-joiner", help="A third party that joins, by name."),
    rows: int | None = typer.Option(None, "--rows", help="Expected overlap, to see what it promises."),
    as_json: bool = show.JSON,
) -> None:
    """Write the plan both sides agree on, and what it promises. Reads no data.

    Example: kasuri shuffle plan plan.json --key phone --a age:20:80 --b spend:0:1000 --epsilon-each 1 --delta 1e-8
    """
    import kasuri as ks

    a_names, a_bounds, a_labels = _columns(a)
    b_names, b_bounds, b_labels = _columns(b)
    told: dict[str, Any] = {
        "key": key,
        "a": tuple(a_names),
        "b": tuple(b_names),
        "bounds": a_bounds | b_bounds,
        "categories": a_labels | b_labels,
        "mechanisms": _pairs(mechanism, "--mechanism"),
        "ab": _two(_pairs(ab, "--ab")),
        "delta": delta,
        "minimum_overlap": minimum_overlap,
        "outside": outside,
        "trusted_joiner": trusted_joiner,
    }
    if k is None:
        made = ks.shuffle.Plan(epsilon_each=epsilon_each, epsilons=_pairs(epsilon, "--epsilon"), **told)
    elif epsilon_each is not None or epsilon:
        raise typer.BadParameter("--k finds every epsilon: leave --epsilon-each and --epsilon out")
    else:
        made = ks.shuffle.Plan.anonymous(k, **told)
    from kasuri.shuffle.files import refuse_existing

    refuse_existing(out)
    claims = made.guarantee(n=rows if rows is not None else made.minimum_overlap)
    made.save(out)
    data = {"plan": str(out), "hash": made.hash, "claims": claims.to_json()}
    show.result(data, f"{out}: plan {made.hash}\n{claims.words()}", as_json)


@app.command()
def keygen(
    plan_file: Path = PLAN,
    side: str = SIDE,
    sign: Path = typer.Option(..., "--sign", help="Your long-term private key (kasuri keygen); it signs, no more."),
    one_time: Path = typer.Option(..., "--one-time", help="Where to write the one-time key of this run; keep it."),
    offer: Path = typer.Option(..., "--offer", help="Where to write the signed offer; send it to the other side."),
    as_json: bool = show.JSON,
) -> None:
    """Sign the plan and make this run's one-time key.

    Example: kasuri shuffle keygen --plan plan.json --side a --sign a.key --one-time once.key --offer offer-a.json
    """
    import kasuri as ks
    from kasuri.manifest import keys

    made = ks.shuffle.Plan.load(plan_file)
    said = ks.shuffle.exchange(made, _side(side), keys.private(sign), one_time, offer)
    show.result(said, f"{offer}: send it to the other side. {one_time}: keep it; `shuffle run` consumes it", as_json)


@app.command()
def run(
    source: Path = typer.Argument(..., help="Your rows: CSV or Parquet, one row a person."),
    plan_file: Path = PLAN,
    side: str = SIDE,
    one_time: Path = typer.Option(..., "--one-time", help="Your one-time key; it is consumed."),
    own: Path = typer.Option(..., "--own", help="Your own offer."),
    other: Path = typer.Option(..., "--other", help="The other side's offer."),
    peer: Path = typer.Option(..., "--peer", help="The other side's long-term public key, known from elsewhere."),
    out: Path = typer.Option(..., "--out", help="The Parquet file to write and hand to the joiner."),
    ledger: Path | None = typer.Option(None, "--ledger", help="The budget that pays for your columns."),
    data: str | None = typer.Option(None, "--data", help="Name of your data set, as in the ledger."),
    unmetered: bool = typer.Option(False, "--unmetered", help="No ledger, and that is meant."),
    as_json: bool = show.JSON,
) -> None:
    """Pseudonymise, randomise, shuffle and forget: one side's part, once.

    Example: kasuri shuffle run people.csv --plan plan.json --side a --one-time once.key --own offer-a.json
    --other offer-b.json --peer b.key.pub --out table-a.parquet --unmetered
    """
    import kasuri as ks
    from kasuri.manifest import keys
    from kasuri.shuffle.files import refuse_existing

    if (ledger is None) == (not unmetered):
        raise typer.BadParameter("give --ledger (and --data), or --unmetered")
    made = ks.shuffle.Plan.load(plan_file)
    refuse_existing(out)
    secret = ks.shuffle.Secret.agree(made, _side(side), one_time, own, other, keys.public_hex(peer))
    book = None if ledger is None else ks.Ledger.load(ledger)
    with show.step("randomising"), ks.shuffle.Party(made, _side(side), secret) as party:
        table = party.run(source, ledger=book, data=data)
    table.save(out, unmetered=unmetered)
    for note in party.notes:
        typer.echo(f"note (confidential): {note}", err=True)
    assert party.deletion is not None
    destroyed = ", ".join(party.deletion["destroyed"])
    shown = {"out": str(out), "rows": len(table), "plan": made.hash, "session": table.session,
             "deletion": party.deletion, "guarantee": table.guarantee.to_json()}  # fmt: skip
    show.result(shown, f"{out}: {len(table)} rows, {table.guarantee.words()}\ndestroyed: {destroyed}", as_json)


@app.command()
def join(
    a: Path = typer.Argument(..., help="The file of side a."),
    b: Path = typer.Argument(..., help="The file of side b."),
    plan_file: Path = PLAN,
    out: Path = typer.Option(..., "--out", help="The Parquet file of joined rows to write."),
    unmetered: bool = typer.Option(False, "--unmetered", help="A side had no ledger, and that is meant."),
    as_json: bool = show.JSON,
) -> None:
    """Join the two files; only joined rows, without pseudonyms and in a fresh order, are written.

    Example: kasuri shuffle join table-a.parquet table-b.parquet --plan plan.json --out joined.parquet
    """
    import kasuri as ks
    from kasuri.shuffle.files import refuse_existing

    refuse_existing(out)
    made = ks.shuffle.Plan.load(plan_file)
    joined = ks.shuffle.join(made, ks.shuffle.Shuffled.load(a, made), ks.shuffle.Shuffled.load(b, made))
    joined.save(out, unmetered=unmetered)
    data = {"out": str(out), "rows": len(joined), "claims": joined.claims.to_json()}
    show.result(data, f"{out}: {len(joined)} rows\n{joined.claims.words()}", as_json)


@app.command()
def stats(
    joined_file: Path = typer.Argument(..., help="Joined rows (kasuri shuffle join)."),
    contingency: str | None = typer.Option(None, "--contingency", help="Two category columns: row,column."),
    regression: str | None = typer.Option(None, "--regression", help="target~feature,feature: least squares."),
    logistic: str | None = typer.Option(None, "--logistic", help="target~feature,feature: target has two labels."),
    svm: str | None = typer.Option(None, "--svm", help="target~feature,feature: target has two labels."),
    pca: bool = typer.Option(False, "--pca", help="Principal components."),
    ridge: float = typer.Option(0.01, "--ridge", help="Steadies the models against noise."),
    report: Path | None = REPORT,
    as_json: bool = show.JSON,
) -> None:
    """Means, covariances and correlations with standard errors, or one model.

    Example: kasuri shuffle stats joined.parquet --regression "spend~age" --report joined.html
    """
    import kasuri as ks

    _free(report)
    joined = ks.shuffle.Joined.load(joined_file)
    found: Any
    models = []
    if contingency is not None:
        names = contingency.split(",")
        if len(names) != 2:
            raise typer.BadParameter("--contingency takes two columns: row,column")
        found = ks.shuffle.contingency(joined, *names)
    elif pca:
        found = ks.shuffle.pca(joined)
    else:
        found = None
        for name, formula in (("regression", regression), ("logistic", logistic), ("svm", svm)):
            if formula is not None:
                target, _, features = formula.partition("~")
                found = getattr(ks.shuffle, name)(joined, target, tuple(features.split(",")), ridge=ridge)
                models.append(found)
        found = ks.shuffle.covariance(joined) if found is None else found
    if report is not None:
        with files.whole(report, new=True) as part:
            part.write_text(ks.shuffle.report(joined, models=models), encoding="utf-8")
    guarantee = joined.claims.public
    show.result(found.to_json() | {"guarantee": guarantee.to_json()}, f"{found.words()}\n{guarantee.words()}", as_json)


@app.command()
def synthesize(
    joined_file: Path = typer.Argument(..., help="Joined rows (kasuri shuffle join)."),
    rows: int = typer.Option(..., "--rows", min=1, help="How many synthetic people."),
    method: str = typer.Option("copula", "--method", help="copula, pca, regression or svm."),
    out: Path = typer.Option(..., "--out", help="CSV or Parquet file to write."),
    report: Path | None = REPORT,
    as_json: bool = show.JSON,
) -> None:
    """Write synthetic rows made from the estimates, and say how near to them they are. Rows whose means are over 3
    standard errors off the estimates are not written: exit code 1.

    Example: kasuri shuffle synthesize joined.parquet --rows 100000 --out synthetic.csv
    """
    import kasuri as ks
    from kasuri.shuffle.files import refuse_existing

    refuse_existing(out)
    _free(report)
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise DomainError(f"{out}: a .csv or .parquet file is needed")
    joined = ks.shuffle.Joined.load(joined_file)
    made = ks.shuffle.synthesize(joined, rows=rows, method=cast(Any, method))
    near = ks.shuffle.quality(made, joined)
    raise_faults(
        NumericsError,
        [f"{name}: the mean of the synthetic rows is {near.off[name]:.1f} standard errors off; nothing was written. "
         "Run again, or ask for more rows" for name in near.failed],
    )  # fmt: skip
    from pyarrow import csv, parquet

    with files.whole(out, new=True) as part:
        if out.suffix.lower() == ".csv":
            csv.write_csv(names.cells(made.to_arrow()), part)
        else:
            parquet.write_table(made.to_arrow(), part)
    if report is not None:
        with files.whole(report, new=True) as part:
            part.write_text(ks.shuffle.report(joined, synthetic=made), encoding="utf-8")
    data = {"out": str(out), "rows": rows, "quality": near.to_json(), "notes": list(made.notes),
            "guarantee": made.guarantee.to_json()}  # fmt: skip
    notes = "".join(f"note: {note}\n" for note in made.notes)
    show.result(data, f"{out}: {rows} rows\n{near.words()}\n{notes}{made.guarantee.words()}", as_json)


def _free(report: Path | None) -> None:
    from kasuri.shuffle.files import refuse_existing

    if report is not None:
        refuse_existing(report)


def _side(side: str) -> Any:
    if side not in ("a", "b"):
        raise typer.BadParameter("--side must be a or b")
    return side
