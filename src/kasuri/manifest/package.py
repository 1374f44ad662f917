"""datapackage.json: a Frictionless data package whose `privacy` block says what the release promises and rests on.

The field names of `privacy` are those of the public registry of differential privacy deployments where it has them
(dp_variant, privacy_loss, deployment_model, accounting, implementation). Nothing here is a digest, a size or a count
of the input.
"""

from __future__ import annotations

import functools
import hashlib
import json
import platform
from collections.abc import Mapping
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

from kasuri import refine
from kasuri.errors import PrivacyError
from kasuri.manifest import certificate, expected, keys
from kasuri.privacy import Guarantee, decimal, written
from kasuri.published import intervals
from kasuri.published.protected import NO_LEDGER, Described, Protected, files_of
from kasuri.recipes.read import read
from kasuri.schema import PROVIDER_BOUNDED, ROWS_ALONE, Domain, Unit
from kasuri.words import bias, japanese

MANIFEST = "datapackage.json"
VERSION = 1
PACKAGES = ("cryptography", "duckdb", "kasuri", "numba", "numpy", "pyarrow")
"""What can change a released number or a written byte."""

FIELDS: dict[str, str] = {
    "release_id": "random name of this release",
    "cell": "row-major index of the cell over the domain's shape",
    "mesh_code": "JIS X 0410 mesh code",
    "grid_code": "code of the grid cell",
    "row": "row of the mesh, from the window's south edge",
    "col": "column of the mesh, from the window's west edge",
    "value": "released count, noise included",
    "level": "levels below the root; -1 is the root sum",
    "prefix": "number of the node within its level",
    "scale": "scale of the discrete Laplace noise of this number",
    "lower": "lower end of the 95 % interval for the true count",
    "upper": "upper end of the 95 % interval for the true count",
}
_TYPES = {"int": "integer", "uin": "integer", "flo": "number", "dou": "number", "boo": "boolean", "str": "string"}
_MEDIA = {
    ".parquet": "application/vnd.apache.parquet",
    ".duckdb": "application/vnd.duckdb",
    ".md": "text/markdown",
    ".html": "text/html",
    ".json": "application/json",
}


def text(data: Any) -> bytes:
    """The one way a manifest is written: what is signed is what is on disk."""
    return (json.dumps(data, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n").encode()


def digest(manifest: dict[str, Any]) -> str:
    """SHA-256 of the manifest without its own `digest` field: a flipped byte shows even where nothing is signed."""
    return sha256(text({key: value for key, value in manifest.items() if key != "digest"}))


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write(release: Described, folder: Path, sign: str | Path | None = None) -> None:
    """Describe `release` in `folder`, which holds its other files already: certificates, report, manifest, signature.

    Everything that is in the folder by now is listed with its hash, so this comes last. The report is made from the
    files in the folder; `release` only says again what they hold.
    """
    from kasuri.report import page

    if not release.provenance["secure"]:
        raise PrivacyError("a seeded release has no manifest and cannot be signed: release again with source=secure()")
    key = None if sign is None else keys.private(sign)
    privacy = privacy_block(release)
    for name, words in (("certificate.md", certificate.english), ("certificate.ja.md", certificate.japanese)):
        (folder / name).write_bytes(words(privacy, release.provenance.get("about")).encode())
    manifest = described(release, privacy)
    manifest["resources"] = [resource(path, release) for path in sorted(folder.iterdir())]
    manifest["report"] = page.too_large(folder)
    if manifest["report"] is None:
        (folder / page.REPORT).write_bytes(page.build(folder, manifest, release).encode())
        manifest["resources"].append(resource(folder / page.REPORT, release))
    manifest["digest"] = digest(manifest)
    data = text(manifest)
    (folder / MANIFEST).write_bytes(data)
    if key is not None:
        (folder / keys.SIGNATURE).write_bytes(text(keys.signature(key, data)))


def described(release: Described, privacy: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest but for its files, its report and its digest. What its publisher says of it is there as a whole, and
    under the names that data packages have for it."""
    about = release.provenance.get("about")
    told: dict[str, Any] = {}
    if about is not None:
        told["about"] = dict(about)
        if "source" in about:
            told["sources"] = [{"title": about["source"]}]
        if "publisher" in about:
            told["contributors"] = [{"title": about["publisher"], "role": "publisher"}]
    return told | {
        "profile": "data-package",
        "name": f"kasuri-{release.provenance['release_id']}",
        "id": release.provenance["release_id"],
        "title": (about or {}).get("title", f"{release.provenance['data'] or 'table'}: {release.recipe['name']}"),
        "kasuri": VERSION,
        "domain": release.domain.to_json(),
        "grid": grid(release.domain),
        "absent_cells": "0: every cell of the domain that is not listed was released as 0",
        "intervals": error_bars(release),
        "total": release.total(),
        "privacy": privacy,
    }


IN_PARTS = (
    "a cluster wrote the table in parts, without limits; Release.load(folder).interval(...) makes those of any area"
)


def error_bars(release: Described) -> dict[str, Any]:
    """What the columns lower and upper hold, or why they are null."""
    if not isinstance(release, Protected):
        return {"level": None, "why": IN_PARTS}
    why = intervals.missing(release)
    if why is not None:
        return {"level": None, "why": why}
    return {
        "level": f"{intervals.LEVEL}",
        "method": intervals.bars_of(release).method,
        "basis": "docs/proofs/intervals.md",
        "absent_cells": "a cell that is not listed has an interval too, from 0 to an upper limit: "
        "Release.load(folder).interval(cells=[cell]); so has any other area and any other confidence",
    }


def grid(domain: Domain) -> list[dict[str, Any]]:
    """Where the mesh lies: reference system, level, and the south-west corner in cells of that level. A grid without a
    level has no place, and so no reference system."""
    meshes = domain.planes
    return [
        {
            "axis": mesh.name,
            "crs": mesh.where(),
            "mesh_level": mesh.level,
            "anchor": {"row": mesh.origin[0], "col": mesh.origin[1], "corner": "south-west"},
            "shape": {"rows": mesh.shape[0], "cols": mesh.shape[1]},
        }
        for mesh in meshes
    ]


def resource(path: Path, release: Described) -> dict[str, Any]:
    """One file of the release, with its hash; a Parquet file also with its columns."""
    out: dict[str, Any] = {
        "name": path.name.lower().replace(".", "-").replace("_", "-"),
        "path": path.name,
        "format": path.suffix[1:],
        "mediatype": _MEDIA.get(path.suffix, "application/octet-stream"),
        "hash": sha256(path.read_bytes()),
    }
    if path.suffix == ".parquet":
        from pyarrow import parquet

        fields = [_field(column.name, str(column.type), release) for column in parquet.read_schema(path)]
        out |= {"profile": "tabular-data-resource", "schema": {"fields": fields}}
        if files_of("release", [path.name]):
            out["schema"]["primaryKey"] = ["cell"]
    return out


def _field(name: str, kind: str, release: Described) -> dict[str, Any]:
    field = {"name": name, "type": _TYPES.get(kind.removeprefix("large_")[:3], "any")}
    for known, words in FIELDS.items():
        if name == known or name.endswith(f"_{known}"):
            field["description"] = words
    if name == "scale":
        field["description"] = FIELDS["scale"].replace("discrete Laplace", release.recipe["noise"])
    if name == "value":
        unit = release.guarantee.unit
        field["unit"] = f"{unit.id} (count)" if unit.max_weight is None else f"weight of each {unit.id}, summed"
        if unit.max_sum is not None:
            field["unit"] = f"amount of each {unit.id}, summed"
    return field


def privacy_block(release: Described) -> dict[str, Any]:
    """Everything a privacy officer asks, in plain data; nothing of it depends on the input but through the release."""
    guarantee, recipe, unit = release.guarantee, release.recipe, release.guarantee.unit
    ledger = release.provenance.get("ledger")
    run = read(recipe, release.domain, unit, guarantee.epsilon, told=True)
    noise = expected.by_area(run)
    errors = expected.after(run, release)
    enforced = "by kasuri, when counting"
    if PROVIDER_BOUNDED in guarantee.assumes:
        enforced = "by the provider of the table, on trust"
    elif ROWS_ALONE in guarantee.assumes:
        enforced = "by kasuri, when counting rows taken on trust"
    return {
        "release_id": release.provenance["release_id"],
        "data": release.provenance["data"],
        "dp_variant": {
            "name": variant(guarantee),
            "data_domain": data_domain(release.domain),
            "unprotected_quantities": list(guarantee.public),
            "neighbours": guarantee.relation(),
            "relation": unit.change,
        },
        "privacy_loss": {
            "privacy_unit": unit.id,
            "privacy_unit_description": guarantee.relation(),
            "privacy_parameters": {
                "epsilon": decimal(guarantee.epsilon),
                "delta": decimal(guarantee.delta),
                "rho": None if guarantee.rho is None else decimal(guarantee.rho),
            },
            "privacy_parameters_description": guarantee.words(),
            "contribution_bound": {
                "max_cells": unit.max_cells,
                "max_weight": unit.max_weight if unit.max_sum is None else unit.max_sum,
                "enforced": enforced,
                **({} if unit.per is None else {"per": unit.per}),
                **({} if unit.max_sum is None else {"max_sum": unit.max_sum}),
            }
            | _sums(unit),
        },
        "deployment_model": {
            "model_name": guarantee.model,
            "release_type": "one-shot",
            "data_source_type": "static",
            "access_type": "non-interactive",
        },
        "accounting": {
            "composition": _composition(ledger),
            "ledger": ledger,
            "post_processing": post_processing(recipe) | ({"ja": run.refined_ja} if run.refined_ja else {}),
        },
        "implementation": {
            "mechanisms": mechanisms(recipe, guarantee.epsilon),
            "pre_processing_eda_hyperparameter_tuning": recipe.get(
                "tuning",
                {"source": "none: this recipe has no parameter tuned on data", "charged": "nothing to charge"},
            ),
            "sampler": run.noise.sampler_words,
            "randomness": release.provenance["source"],
            "secure": release.provenance["secure"],
            "software": release.provenance["software"],
            "environment": environment(),
            "recipe": dict(recipe),
            "refinement": {"version": refine.VERSION},
            "configuration_hash": release.provenance.get("plan"),
            "basis": guarantee.basis,
        },
        **({"acceptance": dict(judged)} if (judged := release.provenance.get("acceptance")) else {}),
        "assumes": list(guarantee.assumes),
        "expected_error": {
            "before_refinement": noise,
            "note": "closed form, aligned square blocks" if noise else "this recipe has no closed form",
            "after_refinement": errors,
            "after_note": expected.NOTES[errors is not None],
            "bias": bias.by_area(run),
            "advised_smallest_area": (
                expected.advised(release, errors or noise) if isinstance(release, Protected) else None
            ),
        },
    }


def _sums(unit: Unit) -> dict[str, Any]:
    """What a sum over cells is not: a number of units, where one unit may be in it more than once."""
    named, most = japanese.unit(unit.id), f"{unit.most:,}"
    if unit.max_sum is not None:
        en = f"Values are sums of amounts, up to {unit.max_sum:,} of one {unit.id} in a cell and {most} in all."
        ja = f"値は量の合計で、{named} 1 単位につき 1 セル最大 {unit.max_sum:,}、全体で最大 {most} です。"
    elif unit.max_weight is not None:
        en = f"A sum over cells, the total included, adds weights, up to {most} per {unit.id}: it counts no {unit.id}s."
        ja = f"セルの合計（総数を含む）は重みの和で、{named} 1 単位につき最大 {most} です。{named}の数ではありません。"
    elif unit.max_cells > 1:
        en = (
            f"A sum over cells, the total included, counts one {unit.id} once in each of its cells: up to {most} times."
        )
        ja = f"複数のセルの合計（総数を含む）では、{named} 1 単位がそのセルごとに、最大 {most} 回数えられます。"
    else:
        return {}
    return {"sums": {"en": en, "ja": ja}}


def variant(guarantee: Guarantee) -> str:
    """Which definition of differential privacy the claim is made in."""
    return "zero-concentrated" if guarantee.rho is not None else "approximate" if guarantee.delta else "pure"


def data_domain(domain: Domain) -> str:
    """The dimensions and their sizes in words."""
    sizes = [size for axis in domain.axes for size in (axis.sizes if axis.plane is None else axis.plane.shape)]
    away = "".join(f", {plane.name} elsewhere" for plane in domain.planes if plane.elsewhere)
    return " x ".join(f"{dim} ({size})" for dim, size in zip(domain.dims, sizes, strict=True)) + away


def post_processing(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What was done with the noisy numbers."""
    return {
        "name": recipe["refine"],
        "parameters": {
            key: recipe[key]
            for key in ("order", "interleave", "descent", "options", "arguments", "threshold")
            if key in recipe
        },
        "sees": "noisy numbers only",
    }


def mechanisms(recipe: Mapping[str, Any], epsilon: Fraction) -> list[dict[str, Any]]:
    """What was measured, and with which noise: one entry each. A level of a count tree has its own share of epsilon,
    and so the scale of the whole over that share. The sensitivity is that of the recipe; words of an earlier kasuri do
    not tell it, and what they say is then judged by `recompute`."""
    if "mechanisms" in recipe:
        return list(recipe["mechanisms"])
    scale = written(recipe["scale"])
    levels = {f"counts of level {depth}": written(share) for depth, share in recipe.get("shares", {}).items()}
    return [
        {
            "query": query,
            "recipe": recipe["name"],
            "sensitivity": recipe.get("sensitivity") or decimal(scale * epsilon),
            "noise": recipe["noise"],
            "scale": decimal(scale / share),
        }
        for query, share in (levels or {recipe["transform"]: Fraction(1)}).items()
    ]


def _composition(ledger: dict[str, Any] | None) -> str:
    if ledger is None:
        return NO_LEDGER
    how = {
        "pure": "epsilons of all releases of this data add up",
        "zcdp": "rhos of all releases of this data add up",
        "pld": "a series declared beforehand, priced by its privacy-loss distribution; other releases add to it",
        "window": "slots of equal noise, priced together over every window of consecutive slots; nothing is used up, "
        "and what a window has lost is never undone",
    }
    also = "; parts of one split cost the dearest of them, as many as a unit can be in" if "split" in ledger else ""
    return how[ledger["accounting"]] + also


def environment() -> dict[str, Any]:
    """Versions of what can change a released number, one hash over them, and the kind of machine."""
    versions = {"python": platform.python_version()} | {name: installed(name) for name in PACKAGES}
    return {"versions": versions, "hash": versions_hash(versions), "machine": machine()}


@functools.cache  # read from files, by a parser of mail
def installed(name: str) -> str:
    """The version of a package."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions_hash(versions: Mapping[str, str]) -> str:
    """One hash over the versions."""
    return sha256("".join(f"{name}=={version}\n" for name, version in sorted(versions.items())).encode())


@functools.cache
def machine() -> str:
    """What else can change the last digit of a number: the processor and its instructions, under the versions above.
    Refinements are replayed to the last value where it is the same."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as known

        features = sorted(name for name, there in known.items() if there)
    except ImportError:
        features = []
    versions = [f"{name} {installed(name)}" for name in ("llvmlite", "numba", "numpy")]
    return f"{platform.machine()} {sha256(json.dumps([features, versions]).encode())[7:19]}"
