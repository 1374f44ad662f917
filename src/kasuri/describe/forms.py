"""The forms that are made of the manifest: a registry entry, CSV on the Web, DCAT and schema.org, and a page of
answers."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from kasuri.published.protected import Protected
from kasuri.store.columns import release_table

NOT_SAID = "not declared by the publisher"
CSVW = "http://www.w3.org/ns/csvw"
EO = "https://github.com/dscc-admin-ch/csvw-eo#"
_KINDS = {"int64": "integer", "double": "number", "string": "string", "timestamp[us]": "dateTime"}
Manifest = Mapping[str, Any]


def registry(manifest: Manifest, release: Protected) -> dict[str, str]:
    """An entry for a public registry of deployments, all tiers: who and what; the guarantee; how it was made. What the
    publisher did not declare is null and is listed."""
    privacy, about = manifest["privacy"], manifest.get("about") or {}
    made = privacy["implementation"]
    first = {
        "name": about.get("title"),
        "data_curator": about.get("publisher"),
        "contact": about.get("contact"),
        "description": _sentence(manifest),
        "data_source": about.get("source"),
        "data_product_type": "table of counts" if release.guarantee.unit.max_sum is None else "table of sums",
        "publication_date": about.get("published"),
        "licence": about.get("licence"),
        "status": "published" if manifest["withdrawn"] is None else "withdrawn",
    }
    entry = {
        "schema": "kasuri registry entry 1",
        "identifier": privacy["release_id"],
        "tier_1": first | {"undeclared": sorted(name for name, said in first.items() if said is None)},
        "tier_2": {
            "dp_flavor": privacy["dp_variant"],
            "privacy_loss": privacy["privacy_loss"],
            "deployment_model": privacy["deployment_model"],
        },
        "tier_3": {
            "accounting": privacy["accounting"],
            "implementation": {name: made[name] for name in made if name not in ("environment",)},
            "assumptions": privacy["assumes"],
            "expected_error": privacy["expected_error"],
        },
    }
    return {"registry.json": _json(entry)}


def csvw(manifest: Manifest, release: Protected) -> dict[str, str]:
    """`release.csv` and its metadata: W3C CSV on the Web, with privacy unit and contributions in the csvw-eo terms."""
    from pyarrow import csv

    table = release_table(release).drop_columns(["release_id"])
    out = io.BytesIO()
    csv.write_csv(table, out, csv.WriteOptions(quoting_style="needed"))
    described = {
        field["name"]: field.get("description", "")
        for item in manifest["resources"] if item["path"].endswith(".parquet")
        for field in item.get("schema", {}).get("fields", ())
    }  # fmt: skip
    unit = release.guarantee.unit
    columns = [
        {
            "@type": "Column",
            "name": name,
            "titles": name,
            "datatype": _KINDS.get(str(table.schema.field(name).type), "string"),
            "required": table[name].null_count == 0,
        }
        | ({"dc:description": described[name]} if described.get(name) else {})
        for name in table.column_names
    ]
    about = manifest.get("about") or {}
    metadata = {
        "@context": [CSVW, {"@language": about.get("language", "en")}],
        "@type": "Table",
        "url": "release.csv",
        "dc:title": _title(manifest),
        "dc:description": _sentence(manifest),
        **({"dc:publisher": about["publisher"]} if "publisher" in about else {}),
        **({"dc:license": about["licence"]} if "licence" in about else {}),
        f"{EO}privacyUnit": unit.id,
        f"{EO}maxContributions": unit.most,
        f"{EO}maxGroupsPerUnit": unit.max_cells,
        "tableSchema": {"columns": columns, "primaryKey": "cell"},
    }
    # the csvw-eo reader knows its terms without a prefix, which a plain CSVW reader does not allow: a file of its own
    doubles = [
        {name: column[name] for name in ("@type", "name", "required")}
        | {"datatype": "double" if column["datatype"] == "number" else column["datatype"]}
        for column in columns
    ]
    terms = {
        "@context": [CSVW, EO], "@type": "Table", "privacyUnit": unit.id, "maxContributions": unit.most,
        "maxLength": None, "publicLength": None, "tableSchema": {"columns": doubles},
    }  # fmt: skip
    return {
        "release.csv": out.getvalue().decode(),
        "release.csv-metadata.json": _json(metadata),
        "csvw-eo.json": _json(terms),
    }


def dcat(manifest: Manifest, release: Protected) -> dict[str, str]:
    """DCAT and schema.org in one JSON-LD graph: the dataset, its publisher as declared, its files with checksums."""
    about, privacy = manifest.get("about") or {}, manifest["privacy"]
    own = f"urn:uuid:{_uuid(privacy['release_id'])}"
    files = [
        {
            "@id": f"{own}#{item['name']}",
            "@type": ["dcat:Distribution", "schema:DataDownload"],
            "dct:title": item["path"],
            "dcat:mediaType": {"@id": f"https://www.iana.org/assignments/media-types/{item['mediatype']}"},
            "dcat:accessURL": {"@id": f"{own}/{item['path']}"},
            "schema:encodingFormat": item["mediatype"],
            "schema:name": item["path"],
            "spdx:checksum": {
                "@type": "spdx:Checksum",
                "spdx:algorithm": {"@id": "spdx:checksumAlgorithm_sha256"},
                "spdx:checksumValue": str(item["hash"]).removeprefix("sha256:"),
            },
        }
        for item in manifest["resources"]
    ]
    publisher = {"@id": f"{own}#publisher", "@type": ["foaf:Agent", "schema:Organization"]}
    publisher |= {"foaf:name": about.get("publisher", NOT_SAID), "schema:name": about.get("publisher", NOT_SAID)}
    dataset = {
        "@id": own,
        "@type": ["dcat:Dataset", "schema:Dataset"],
        "dct:identifier": privacy["release_id"],
        "dct:title": _title(manifest),
        "schema:name": _title(manifest),
        "dct:description": _sentence(manifest),
        "schema:description": _sentence(manifest),
        "dct:publisher": {"@id": publisher["@id"]},
        "schema:creator": {"@id": publisher["@id"]},
        "dct:language": about.get("language", "en"),
        "schema:isAccessibleForFree": True,
        "schema:variableMeasured": "value: a count with added noise; lower, upper: its 95 % interval",
        "schema:measurementTechnique": release.guarantee.words(),
        "dcat:distribution": [{"@id": file["@id"]} for file in files],
        "schema:distribution": [{"@id": file["@id"]} for file in files],
        **({"dct:issued": {"@type": "xsd:date", "@value": about["published"]}} if "published" in about else {}),
        **({"schema:datePublished": about["published"]} if "published" in about else {}),
        **({"dct:license": about["licence"], "schema:license": about["licence"]} if "licence" in about else {}),
        **({"dct:source": about["source"]} if "source" in about else {}),
        **({"dcat:contactPoint": about["contact"]} if "contact" in about else {}),
    }
    context = {
        "dcat": "http://www.w3.org/ns/dcat#", "dct": "http://purl.org/dc/terms/", "foaf": "http://xmlns.com/foaf/0.1/",
        "schema": "https://schema.org/", "spdx": "http://spdx.org/rdf/terms#",
        "xsd": "http://www.w3.org/2001/XMLSchema#",
    }  # fmt: skip
    return {"dcat.jsonld": _json({"@context": context, "@graph": [dataset, publisher, *files]})}


def hazards(manifest: Manifest, release: Protected) -> dict[str, str]:
    """A page that answers, one by one, what NIST SP 800-226 asks of a guarantee and ISO/IEC 27559 of a release."""
    privacy, about = manifest["privacy"], manifest.get("about") or {}
    loss, made, spent = privacy["privacy_loss"], privacy["implementation"], privacy["accounting"]
    parameters, bound = loss["privacy_parameters"], loss["contribution_bound"]
    delta = parameters["delta"]
    small = "delta is 0" if delta == "0" else f"delta is {delta}: with that chance the bound may fail"
    nist = [
        ("The parameter", f"Epsilon is {parameters['epsilon']}; {small}. {loss['privacy_parameters_description']}"),
        ("The unit of privacy", f"{loss['privacy_unit_description']}."),
        ("Neighbours", f"{privacy['dp_variant'].get('neighbours', privacy['dp_variant']['relation'])}."),
        ("Bounded contributions",
         f"At most {bound['max_cells']} cell(s) per {loss['privacy_unit']}, enforced {bound['enforced']}."),
        ("What is not protected",
         f"Treated as public: {', '.join(privacy['dp_variant']['unprotected_quantities']) or 'nothing'}."),
        ("Composition", f"{spent['composition']}. {_ledger(spent)}"),
        ("The trust model", f"{privacy['deployment_model']['model_name']}: whoever runs kasuri sees the records."),
        ("Floating point and randomness", f"{made['sampler']}; source: {made['randomness']}."),
        ("Tuning on the data", _plain(made["pre_processing_eda_hyperparameter_tuning"])),
        ("Post-processing", _plain(spent["post_processing"])),
        ("Accuracy and bias", _plain(privacy["expected_error"]["note"])
         + " (the certificate has the errors and biases by kind of area)."),
        ("Side channels", "Time and size of the run are not published; messages hold no confidential value. An "
         "observer of the machine is not covered."),
        ("What the claim rests on", "; ".join(privacy["assumes"]) or "No further assumption."),
        ("Software", f"{made['software']}; the proof is {made['basis']}; `kasuri verify` computes again what can be."),
    ]  # fmt: skip
    iso = [
        ("Context: who publishes", about.get("publisher", NOT_SAID)),
        ("Context: for whom, on what terms", about.get("licence", NOT_SAID)),
        ("Context: who answers questions", about.get("contact", NOT_SAID)),
        ("Data: source", about.get("source", NOT_SAID)),
        ("Data: what is in the table", f"{privacy['dp_variant']['data_domain']}."),
        ("Data: identifiers", "None: cells of a public domain, noisy numbers, their limits."),
        ("Identifiability: bound", f"The odds of any statement about one {loss['privacy_unit']} change by at most a "
         f"factor of e^{parameters['epsilon']}, whatever else is known."),
        ("Governance: budget", _ledger(spent)),
        ("Governance: correction and withdrawal", "`kasuri withdraw` writes a notice; what was spent stays spent."),
        ("Governance: records kept", "Manifest, certificate in two languages, hashes of all files"
         + (", signature" if manifest.get("signature") else "") + "."),
    ]  # fmt: skip
    lines = [f"# {_title(manifest)}: answers", "", _sentence(manifest), "", "## NIST SP 800-226, point by point", ""]
    lines += [line for name, said in nist for line in (f"**{name}.** {said}", "")]
    lines += ["## ISO/IEC 27559: context, data, identifiability, governance", ""]
    lines += [line for name, said in iso for line in (f"**{name}.** {said}", "")]
    return {"answers.md": "\n".join(lines)}


def _ledger(spent: Manifest) -> str:
    if spent.get("ledger") is None:
        return "No ledger was charged: nothing bounds what other releases of the same data spend."
    return "Charged to a ledger before any noise was drawn; nothing is refunded."


def _plain(said: Any) -> str:
    """A value of the manifest as one line of text."""
    if isinstance(said, Mapping):
        return "; ".join(f"{name}: {_plain(value)}" for name, value in said.items())
    if isinstance(said, (list, tuple)):
        return "; ".join(map(_plain, said))
    return str(said)


def _title(manifest: Manifest) -> str:
    about = manifest.get("about") or {}
    return str(about.get("title") or f"Release {manifest['privacy']['release_id']}")


def _sentence(manifest: Manifest) -> str:
    loss, gone = manifest["privacy"]["privacy_loss"], manifest["withdrawn"]
    said = f"A table published with differential privacy: {loss['privacy_parameters_description']}"
    return said if gone is None else f"WITHDRAWN on {gone['day']}: {gone['reason']}. {said}"


def _uuid(release_id: object) -> str:
    import uuid

    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"kasuri:{release_id}"))


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
