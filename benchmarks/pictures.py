"""Reports of every kind, made from ../shared/data, and pictures of them for people to look at.

python benchmarks/pictures.py FOLDER [--only kanto,od] [--again]

Every report is opened in Chromium at 1366, 768 and 390 px, in English and in Japanese: its first screen, the whole
page, and its pages on paper (poppler-utils makes pictures of them). Prints the size of every page and the time of its
first paint. Reports that are there are kept unless --again.
"""

from __future__ import annotations

import argparse
import base64
import csv
import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import made_tables as made
from clients.browser import Browser
from clock import line

import kasuri as ks
from kasuri import examples, files
from kasuri.cli import demos

PERSON = ks.Unit(id="person", change="add-remove", max_cells=1)
SCREENS = ((1366, 768, False), (768, 1024, False), (390, 844, True))
ABOUT = {"publisher": "kasuri examples", "published": "2026-10-01", "contact": "statistics@example.org"}


def save(folder: Path, domain: ks.Domain, truth: np.ndarray, en: str, ja: str, source: str, *, name: str,
         unit: ks.Unit = PERSON, epsilon: str = "1", recipe: Any = None) -> Path:  # fmt: skip
    counts = ks.Counts.from_dense(truth, domain, unit, data=name)
    about = {**ABOUT, "title": en, "title_ja": ja, "source": source, "language": "en"}
    out = ks.release(counts, recipe or ks.best(), epsilon=epsilon, ledger=None, about=about)
    out.save(str(folder), unmetered=True)
    return folder / "report.html"


def kanto(folder: Path) -> Path:
    counts = ks.count(str(examples.KANTO), examples.kanto_domain(), columns={"grid": "mesh_code"},
                      unit=examples.person(), weight="population", data="census-2020-kanto")  # fmt: skip
    ks.release(counts, ks.best(), epsilon="0.1", ledger=None, about=examples.ABOUT).save(str(folder), unmetered=True)
    return folder / "report.html"


def national(folder: Path) -> Path:
    from pyarrow import parquet

    from kasuri.meshcode import decode

    table = parquet.read_table(made.DATA / "jp_mesh500_2020.parquet", columns=["mesh_code", "population"])
    mesh = ks.Mesh.window("grid", "japan4096")
    row, col = decode(table["mesh_code"].to_numpy().astype(np.int64), "500m")[:2]
    row, col = row - mesh.origin[0], col - mesh.origin[1]
    inside = (row >= 0) & (row < 4096) & (col >= 0) & (col < 4096)
    truth = np.zeros((4096, 4096), dtype=np.int64)
    truth[row[inside], col[inside]] = table["population"].to_numpy()[inside]
    return save(folder, ks.Domain.of(mesh), truth, "Where people live in Japan in 2020, on 500 m cells",
                "日本の人口分布（2020年国勢調査、500mメッシュ）", examples.CREDIT, name="census-2020")  # fmt: skip


def europe(folder: Path) -> Path:
    axis = ks.Grid("home", scheme="eu", level="1km", origin=(2800, 3600), shape=(512, 512))
    return save(folder, ks.Domain.of(axis), made.europe().truth,
                "Where people live between London and Cologne: the census grid of 2011, protected",
                "ロンドンからケルンまでの人口分布（2011年、1kmメッシュ）を保護して公表",
                "Eurostat, EFGS, JRC: GEOSTAT population grid 2011 (extract)", name="census-2011")  # fmt: skip


def _counties(name: str, folder: Path, keep: Callable[[str], bool]) -> ks.Regions:
    """Those counties of the published outlines that `keep` wants; the outlines of one city are empty."""
    text = json.loads((made.DATA / "us_counties_10m.topojson").read_text(encoding="utf-8"))
    for layer in ("states", "counties"):
        own = text["objects"][layer]["geometries"]
        text["objects"][layer]["geometries"] = [one for one in own if keep(one["id"]) and one["id"] != "51610"]
    files.write(folder.with_suffix(".topojson"), json.dumps(text))
    return ks.Regions(name, folder.with_suffix(".topojson"), layers=("states", "counties"), code="id",
                      prefix=(2, 5), levels=("state", "county"), crs="EPSG:4326", repair=True,
                      tolerance=0.001)  # fmt: skip


def counties(folder: Path) -> Path:
    axis = _counties("place", folder, lambda code: int(code[:2]) < 57)
    with gzip.open(made.DATA / "us_county_population_2010_2019.csv.gz", "rt", encoding="utf-8") as file:
        people = {row["fips"]: int(row["pop_2019"]) for row in csv.DictReader(file)}
    truth = np.array([people.get(code, 0) for code in axis.labels])
    return save(folder, ks.Domain.of(axis), truth, "Population of the counties of the United States in 2019, protected",
                "アメリカ合衆国の郡別人口（2019年）を保護して公表",
                "U.S. Census Bureau: county population estimates 2019", name="population-2019")  # fmt: skip


def ages(folder: Path) -> Path:
    bands = (*(f"{low}-{low + 4}" for low in range(0, 75, 5)), "75+")
    domain = ks.Domain.of(ks.Mesh("grid", "500m", (8400, 6200), shape=(64, 64)), ks.Ordered("age", 16, bands),
                          ks.Nominal("sex", ("male", "female")))  # fmt: skip
    return save(folder, domain, made.mesh_sex_age().truth, "Women and men of every age around Numazu, 2020",
                "沼津周辺の男女別・年齢別人口（2020年）を保護して公表", f"{examples.CREDIT_EN}; ages by a model",
                name="census-2020-ages")  # fmt: skip


def hours(folder: Path) -> Path:
    domain = ks.Domain.of(ks.Mesh("grid", "1km", (4255, 3130), shape=(64, 64)),
                          ks.Time("hour", "2019-12-04T00:00", seconds=3600, size=24))  # fmt: skip
    return save(folder, domain, made.mesh_hours().truth, "Where people are in Tokyo, hour by hour",
                "東京の時間帯別の滞在人口（2019年12月の平日）", "MLIT: 全国の人流オープンデータ; hours by a model",
                name="flow-2019-12-04", unit=ks.Unit("person", "add-remove", 24))  # fmt: skip


def od(folder: Path) -> Path:
    mesh = [ks.Mesh(name, "2km", (2140, 1560), shape=(16, 16)) for name in ("home", "work")]
    return save(folder, ks.Domain.of(*mesh), made.od_meshes().truth, "From homes to work around Tokyo, protected",
                "東京周辺の通勤流動（居住地から従業地へ）を保護して公表", f"{examples.CREDIT_EN}; trips by a model",
                name="commuting")  # fmt: skip


def commuters(folder: Path) -> Path:
    axes = [_counties(name, folder, lambda code: code[:2] == "36") for name in ("home", "work")]
    names = sorted(axes[0].labels)
    at = [names.index(label) for label in axes[0].labels]
    return save(folder, ks.Domain.of(*axes), made.newyork().truth[np.ix_(at, at)],
                "Who commutes where between the counties of New York",
                "ニューヨーク州の郡間通勤者数を保護して公表", "U.S. Census Bureau: commuting flows 2011",
                name="commuting-ny")  # fmt: skip


def municipalities(folder: Path) -> Path:
    axis = ks.Regions("municipality", [made.DATA / "jp_prefectures.topojson", made.DATA / "jp_municipalities.topojson"],
                      code="code", prefix=(2, 5), levels=("prefecture", "municipality"), crs="EPSG:6668",
                      repair=True)  # fmt: skip
    with open(made.DATA / "jp_municipalities.csv", encoding="utf-8") as file:
        people = {row["code"]: int(row["population_2020"] or 0) for row in csv.DictReader(file)}
    truth = np.array([people.get(code, 0) for code in axis.labels])
    return save(folder, ks.Domain.of(axis), truth, "Population of the municipalities of Japan in 2020, protected",
                "市区町村別人口（令和2年）を差分プライバシーで保護して公表",
                "総務省統計局「令和2年国勢調査」、「国土数値情報（行政区域データ）」（国土交通省）を加工して作成",
                name="census-2020-municipalities", epsilon="0.5")  # fmt: skip


def kanon(folder: Path) -> Path:
    demos.kanon(folder, "")
    return folder / "report.html"


def local(folder: Path) -> Path:
    demos.local(folder, "2")
    return folder / "report.html"


def local_map(folder: Path) -> Path:
    from kasuri.report.local import estimate_page

    with np.load(made.DATA / "pwscup2019_tokyo_traces.npz") as file:
        region = file["region"][:, 20].astype(np.int64) - 1
    mesh = ks.Mesh("grid", "250m", (17112, 12698), shape=(48, 38))
    row, col = (region // 32) * 3 // 2, region % 32 * 6 // 5 - 1
    randomizer = ks.local.oue(mesh, epsilon="3")
    reports = randomizer.randomize(np.clip(row * 38 + np.clip(col, 0, 37), 0, 48 * 38 - 1))
    folder.mkdir(parents=True)
    files.write(folder / "report.html", estimate_page(ks.local.estimate(reports, randomizer).to_json(),
                randomizer.domain, "Where 42,000 phones are", "42,000 台の携帯電話の所在"))  # fmt: skip
    return folder / "report.html"


def joined(folder: Path) -> Path:
    demos.shuffle(folder, "2")
    return folder / "report.html"


KINDS: dict[str, Callable[[Path], Path]] = {
    "kanto": kanto, "national": national, "europe": europe, "counties": counties, "ages": ages, "hours": hours,
    "od": od, "commuters": commuters, "municipalities": municipalities, "kanon": kanon, "local": local,
    "local-map": local_map, "joined": joined,
}  # fmt: skip


def pictures(browser: Browser, report: Path, name: str, folder: Path) -> None:
    """Three widths, two languages, and paper."""
    for language in ("en", "ja"):
        for width, height, phone in SCREENS:
            browser.size(width, height, phone=phone)
            browser.call("Page.navigate", url="about:blank")
            browser.until("document.readyState === 'complete'")
            browser.open(report, f"#{language}")
            browser.picture(folder / f"{name}-{width}-{language}.png")
            high = browser.run("document.documentElement.scrollHeight")
            browser.size(width, min(high, 16_000))
            browser.run("document.getElementById('stage')?.style.setProperty('min-height', '420px')")
            browser.settle()
            browser.picture(folder / f"{name}-{width}-{language}-whole.png")
        browser.size(1000, 1200)
        printed = browser.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"]
        paper = folder / f"{name}-{language}.pdf"
        paper.write_bytes(base64.b64decode(printed))
        for old in folder.glob(f"{name}-{language}-paper-*.png"):
            old.unlink()
        pages = str(folder / f"{name}-{language}-paper")
        subprocess.run(["pdftoppm", "-r", "45", "-png", str(paper), pages], check=True)
    paint = browser.run("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")
    said = browser.complaints or "quiet"
    line(name, f"{report.stat().st_size / 1e6:.3f} MB", f"first paint {paint or 0:.0f} ms, {said}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--again", action="store_true", help="make the reports once more")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for name in asked.only.split(","):
        folder = asked.folder / name
        if asked.again and folder.exists():
            subprocess.run(["rm", "-r", str(folder)], check=True)
        report = folder / "report.html" if (folder / "report.html").exists() else KINDS[name](folder)
        with Browser(asked.folder / f"profile-{os.getpid()}") as browser:
            pictures(browser, report, name, asked.folder)


if __name__ == "__main__":
    main()
