"""kasuri demo local | shuffle | kanon: the siblings of the central pipeline, each on people who are made up or public,
each with a report at the end."""

from __future__ import annotations

import csv
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from kasuri import files
from kasuri.cli import show

DEVICES = 1500
"""Simulated devices of the local demo, each with a connection of its own."""
WARDS_JA = {
    "Chiyoda": "千代田区", "Chuo": "中央区", "Minato": "港区", "Shinjuku": "新宿区", "Koto": "江東区",
    "Shinagawa": "品川区", "Ota": "大田区", "Shibuya": "渋谷区",
}  # fmt: skip
"""Those wards of Tokyo that the local demo is about."""
PEOPLE = 24_000
"""Made-up people of the two-party demo."""


def local(folder: Path, epsilon: str) -> tuple[dict[str, Any], str, bool]:
    """A crowd that reports its ward to a real collector, which never sees one."""
    import numpy as np

    from kasuri import Nominal
    from kasuri import local as ldp
    from kasuri.report.local import estimate_page

    text = (package_files("kasuri.reproduce") / "horigome2020_wards.csv").read_text(encoding="utf-8")
    rows = sorted(csv.DictReader(text.splitlines()), key=lambda row: -int(row["population"]))[:8]
    wards, people = [row["ward"] for row in rows], np.array([float(row["population"]) for row in rows])
    crowd = np.random.default_rng().choice(len(wards), DEVICES, p=people / people.sum())
    randomizer = ldp.unary(Nominal("ward", tuple(wards)), epsilon=epsilon)
    folder.mkdir(parents=True)
    with show.course(3) as begin:
        begin("starting a collector on this machine, and opening a round")
        key, store = ldp.CollectorKey.open(folder / "collector.key"), ldp.Store(folder / "reports.db")
        opened = store.open_round(ldp.Round.new(randomizer, closes=int(time.time()) + 3600))
        word = secrets.token_urlsafe(16)
        with _collecting(store, key, word) as (url, stopped):
            begin(f"{DEVICES:,} devices report; watch them at {url}/status (operator token {word})")
            _crowd(url, key.public, epsilon, opened.round.id, [wards[at] for at in crowd], stopped)
            begin("closing the round and estimating")
            store.close_round(opened.round.id)
            found = ldp.estimate(ldp.Reports(store.rows(opened), randomizer.fingerprint), randomizer, method="em")
    truth = np.bincount(crowd, minlength=len(wards))
    low, high = (bound[: len(wards)] for bound in found.interval())
    held = int(((low <= truth) & (truth <= high)).sum())
    report = (folder / "report.html").resolve()
    titles = f"Where {DEVICES:,} simulated devices are", f"模擬端末 {DEVICES:,} 台の所在"
    files.write(report, estimate_page(found.to_json(), randomizer.domain, *titles, WARDS_JA))
    lines = [f"{'ward':14}{'devices':>9}{'estimate':>10}{'95 % interval':>18}"]
    for at, ward in enumerate(wards):
        lines.append(f"{ward:14}{truth[at]:9,}{found.counts[at]:10,.0f}{f'{low[at]:,.0f} to {high[at]:,.0f}':>18}")
    story = f"""\
What was promised: {found.guarantee.words()}. The collector never sees where anyone is: each device
  randomises its ward before it sends it, and checks the signed round first.
What came out: {found.reports:,} reports, {"" if found.converged else "NOT "}converged; {held} of {len(wards)}
  intervals hold the truth, which only this simulation knows.
{chr(10).join(lines)}

  report    {report}
  store     {folder / "reports.db"}    reports only, none of them a true place

What to try next:
  kasuri demo local --epsilon 4                a weaker promise, narrower intervals
  kasuri local plan --help                     which randomizer, for how many people
  kasuri local serve --help                    a collector of your own, with a page for browsers"""
    data = {"reports": found.reports, "converged": found.converged, "held": held, "of": len(wards),
            "guarantee": found.guarantee.to_json(), "report": str(report)}  # fmt: skip
    return data, story, bool(found.converged)


@contextmanager
def _collecting(store: Any, key: Any, word: str) -> Iterator[tuple[str, threading.Event]]:
    """A collector in a thread of this process, at a free port of this machine, until the block ends."""
    import uvicorn

    from kasuri.local.collector import application
    from kasuri.start import listen

    stopped = threading.Event()
    with listen() as at:
        config = uvicorn.Config(
            application(store, key, operator_token=word), access_log=False, log_level="error", lifespan="off"
        )
        server = uvicorn.Server(config)

        def run() -> None:
            server.run(sockets=[at])
            stopped.set()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{at.getsockname()[1]}", stopped
        finally:
            server.should_exit = True
            thread.join()
            store.close()


def _crowd(url: str, key: str, epsilon: str, id: str, places: list[str], stopped: threading.Event) -> None:
    """Every device fetches the round, checks its signature, randomises and sends; a few at a time."""
    import json
    import urllib.request
    from concurrent.futures import ThreadPoolExecutor

    from kasuri.local import Device
    from kasuri.local.device import send

    with urllib.request.urlopen(f"{url}/rounds/{id}", timeout=30) as answer:
        envelope = json.loads(answer.read())

    def report(place: str) -> None:
        if not stopped.is_set():
            send(f"{url}/rounds/{id}/reports", Device(key, max_epsilon=epsilon).report(envelope, place))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(report, places))


def shuffle(folder: Path, epsilon: str) -> tuple[dict[str, Any], str, bool]:
    """Two organisations, a folder each: what they exchange, and what nobody can trace."""
    import numpy as np

    import kasuri as ks
    from kasuri.manifest import keys

    rng = np.random.default_rng()
    age = rng.uniform(20, 80, PEOPLE)
    spend = np.clip(6 * age + rng.normal(0, 120, PEOPLE), 0, 1000)
    phones = _phones(rng)
    both = slice(PEOPLE // 6, PEOPLE - PEOPLE // 6)
    sides: dict[Any, tuple[Path, slice, str, Any]] = {
        "a": (folder / "phone-company", slice(0, both.stop), "age", age),
        "b": (folder / "shop", slice(both.start, PEOPLE), "spend", spend),
    }
    with show.course(4) as begin:
        begin("making up two organisations that share customers")
        plan = ks.shuffle.Plan(key="phone", a=("age",), b=("spend",), bounds={"age": (20, 80), "spend": (0, 1000)},
                               epsilon_each=epsilon, delta=1e-8)  # fmt: skip
        for place, own, name, values in sides.values():
            place.mkdir(parents=True)
            rows = zip(phones[own], values[own], strict=True)
            files.write(place / "people.csv", f"phone,{name}\n" + "".join(f"{p},{v:.1f}\n" for p, v in rows))
            plan.save(place / "plan.json")
            keys.keygen(place / "sign.key")
        begin("each side signs the plan and sends the other an offer")
        for side, (place, *_) in sides.items():
            ks.shuffle.exchange(plan, side, keys.private(place / "sign.key"), place / "once.key", place / "offer.json")
        begin("each side pseudonymises, randomises, shuffles and forgets")
        tables = {}
        for side, (place, *_) in sides.items():
            other = sides["b" if side == "a" else "a"][0]
            peer = keys.public_hex(other / "sign.key.pub")
            secret = ks.shuffle.Secret.agree(
                plan, side, place / "once.key", place / "offer.json", other / "offer.json", peer
            )
            with ks.shuffle.Party(plan, side, secret) as party:
                tables[side] = party.run(place / "people.csv", ledger=None)
            tables[side].save(place / "sent.parquet", unmetered=True)
        begin("joining what both sent, and drawing people who are nobody's record")
        joined = ks.shuffle.join(plan, tables["a"], tables["b"])
        found = ks.shuffle.covariance(joined)
        synthetic = ks.shuffle.synthesize(joined, rows=5_000)
        report = (folder / "report.html").resolve()
        files.write(report, ks.shuffle.report(joined, synthetic=synthetic))
    i, j = found.names.index("age"), found.names.index("spend")
    low, high = found.interval(0.95)
    true = float(np.cov(age[both], spend[both])[0, 1])
    story = f"""\
What was promised, at epsilon {epsilon} for each column:
  {joined.claims.words().replace(chr(10), chr(10) + "  ")}
What came out: {len(joined):,} joined rows without a name, a phone or an order. Covariance of age and spending:
  {low[i, j]:,.0f} to {high[i, j]:,.0f} (95 %); the truth, which only this simulation knows, is {true:,.0f}.
What each side kept: {sides["a"][0]} and {sides["b"][0]}; the one-time keys are destroyed.

  report    {report}

What to try next:
  kasuri demo shuffle --epsilon 4              a weaker promise, narrower intervals
  kasuri shuffle plan --help                   the same for two real organisations"""
    data = {"rows": len(joined), "claims": joined.claims.to_json(), "covariance": [float(low[i, j]), float(high[i, j])],
            "truth": true, "report": str(report)}  # fmt: skip
    return data, story, True


def _phones(rng: Any) -> list[str]:
    numbers: set[int] = set()
    while len(numbers) < PEOPLE:
        numbers |= set(rng.integers(0, 10**8, PEOPLE).tolist())
    return [f"090{number:08d}" for number in sorted(numbers)[:PEOPLE]]


def kanon(folder: Path, epsilon: str) -> tuple[dict[str, Any], str, bool]:
    """UCI Adult made 10-anonymous, and audited: what that is worth, and what it is not."""
    from kasuri import kanon as anonymity
    from kasuri.report.kanon import audit_page
    from kasuri.reproduce import horigome2020_kanon as paper

    with show.course(3) as begin:
        begin("reading UCI Adult, 45,222 people, and the public trees of its columns")
        rows, recoding = paper.adult(), paper.recoding()
        folder.mkdir(parents=True)
        begin("generalising until every combination is shared by 10 people")
        made = anonymity.specialize(rows, recoding, k=10, suppression="0.01")
        made.save(folder / "anonymous.csv")
        begin("auditing it against the original (confidential)")
        found = anonymity.audit(rows, recoding, k=10, sampling_rate="0.2")
        report = (folder / "report.html").resolve()
        cuts = found.release.cut if found.release is not None and found.release.cut is not None else ()
        trees = [tree.to_json(cut) for tree, cut in zip(recoding.attributes, cuts, strict=False)]
        files.write(report, audit_page(found.to_json(), trees))
    facts = made.to_json()
    story = f"""\
What was made: {made.rows:,} rows in {facts["classes"]:,} classes, the smallest of {facts["k"]};
  {made.suppressed:,} rows suppressed; loss of detail (NCP) {made.ncp_share:.3f} of 1.
What it promises: {facts["words"]}
What the audit says, of 10-anonymity on a fifth of the rows:
  {found.text().replace(chr(10), chr(10) + "  ")}

  report    {report}    CONFIDENTIAL: computed from the original
  table     {folder / "anonymous.csv"}

What to try next:
  kasuri kanon anonymize --help                your own table; --method sample has a guarantee
  kasuri demo                                  differential privacy instead"""
    data = {
        "k": facts["k"],
        "classes": facts["classes"],
        "rows": made.rows,
        "report": str(report),
        "confidential": True,
    }
    return data, story, True


KINDS = {"local": (local, "2"), "shuffle": (shuffle, "2"), "kanon": (kanon, "")}
"""The demos by name, each with the epsilon that it takes unless another is asked for."""
