"""What kasuri is made of, and that it speaks to nobody: pins, licences, the list of parts, no network at run time."""

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]


def supply_chain():
    spec = spec_from_file_location("supply_chain", ROOT / "supply_chain.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CHAIN = supply_chain()


def told(record_property, name, tried, found):
    for key, value in (("section", "supply chain"), ("name", name), ("tried", tried), ("found", found)):
        record_property(key, value)


def test_everything_is_pinned_by_hash(record_property):
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = CHAIN.locked()  # refuses a line without == or without a hash
    assert "://" not in text and "--index" not in text and "-e " not in text and "@ " not in text
    hashes = [digest for pin in pins for digest in pin["hashes"]]
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in hashes)
    direct = {canonicalize_name(Requirement(line).name) for line in metadata.requires("kasuri")} - {"kasuri"}
    assert direct <= {pin["key"] for pin in pins}
    told(
        record_property,
        "pins",
        f"{len(pins)} packages, {len(hashes)} files",
        "each with version and SHA-256, no address",
    )


def test_what_is_installed_is_what_is_pinned(record_property):
    pins = {pin["key"]: pin["version"] for pin in CHAIN.locked() if pin["here"]}
    installed = {canonicalize_name(found.metadata["Name"]): found.version for found in metadata.distributions()}
    assert {name: installed.get(name) for name in pins} == pins
    unpinned = set(installed) - set(pins) - {"kasuri", "pip", "setuptools", "wheel"}
    assert unpinned == set()
    told(record_property, "environment", f"{len(pins)} pins of this platform", "installed as pinned, and nothing else")


def test_the_installer_takes_hashes_only():
    """uv from bootstrap.lock, packages from requirements.lock, kasuri itself without a download."""
    text = (ROOT / "run.py").read_text(encoding="utf-8")
    assert '"--require-hashes", "-r", "bootstrap.lock"' in text
    assert '"--require-hashes", "-r", "core.lock"' in text
    assert '"--require-hashes", "-r", "requirements.lock"' in text
    assert '"--no-deps", "--no-build-isolation", "-e", "."' in text
    assert len(re.findall(r'"install"', text)) == 2
    lock = (ROOT / "bootstrap.lock").read_text(encoding="utf-8")
    assert re.match(r"uv==[\d.]+ \\\n    --hash=sha256:[0-9a-f]{64}", lock) and "://" not in lock


def test_the_licence_list_is_current_and_compatible(record_property):
    parts, text = CHAIN.parts(), (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    assert CHAIN.faults(parts) == []
    if f"Seen from {CHAIN.here()}." not in text:
        pytest.skip("the list was made on another Python or platform")
    assert text == CHAIN.licences(), "python3 run.py licences"
    uses = {part["use"] for part in parts}
    assert {"core", "serve", "spark", "postgres", "development"} <= uses
    core = sum(part["use"] == "core" for part in parts)
    known = sum(part["licence"] is not None for part in parts)
    told(record_property, "licences", f"{known} of {len(parts)} packages (the others: another platform), {core} core",
         "all go with Apache-2.0")  # fmt: skip


@pytest.mark.parametrize(("use", "licence", "bad"), [
    ("core", "GPL-3.0-or-later", True), ("core", "LGPL-3.0-only", True), ("core", "unknown", True),
    ("core", "MIT OR GPL-2.0-or-later", False), ("core", "MIT AND GPL-2.0-or-later", True), ("spark", "SSPL-1.0", True),
    ("development", "LGPL-3.0-only", False), ("development", "unknown", True), ("core", "Apache-2.0", False),
    ("core", "Apache-2.0 WITH LLVM-exception", False),
])  # fmt: skip
def test_a_wrong_licence_is_found(use, licence, bad):
    assert bool(CHAIN.faults([{"name": "x", "use": use, "licence": licence}])) == bad


def test_the_sbom_is_cyclonedx(record_property):
    """By the schema of the standard itself, and what the schema does not say: every part is there, and linked."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    text = CHAIN.sbom()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text.replace('"library"', '"libary"', 1)) is not None
    assert CHAIN.sbom() == text
    bom, pins = json.loads(text), {f"pkg:pypi/{pin['key']}@{pin['version']}": pin for pin in CHAIN.locked()}
    assert {part["purl"] for part in bom["components"]} == set(pins) and len(pins) == len(CHAIN.locked())
    refs = {part["bom-ref"] for part in bom["components"]} | {bom["metadata"]["component"]["bom-ref"]}
    assert {link["ref"] for link in bom["dependencies"]} == refs
    assert all(set(link["dependsOn"]) <= refs for link in bom["dependencies"])
    for part in bom["components"]:
        assert part["bom-ref"] == part["purl"] and part["version"] == pins[part["purl"]]["version"]
        assert {one["content"] for one in part["hashes"]} == set(pins[part["purl"]]["hashes"])
    numpy = next(part for part in bom["components"] if part["name"] == "numpy")
    assert numpy["scope"] == "required" and numpy["licenses"]
    told(record_property, "SBOM (CycloneDX 1.6)", f"{len(refs)} components, linked by what needs what",
         "valid by the standard's own schema")  # fmt: skip


# -- no network --------------------------------------------------------------------------------------------------------

TRACE = ["strace", "-f", "-qq", "--seccomp-bpf", "-e", "trace=socket,connect,sendto,sendmsg,sendmmsg,bind"]
COMMANDS = [
    ["demo", "--out", "demo"],
    ["release", "table.csv", "--origin", "8400,6080", "--shape", "8,8", "--code", "code", "--count", "n", "--unit", "p",
     "--change", "add-remove", "--max-cells", "1", "--epsilon", "1", "--unmetered", "--out", "out",
     "--export", "r.gpkg", "--export", "r.duckdb", "--export", "r.parquet"],
    ["verify", "out"],
    ["report", "out"],
]  # fmt: skip
RUN = """
import json, sys
from kasuri.cli import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["kasuri", *words]
    try:
        main()
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
"""


def alone(words: list[str], folder: Path, log: Path) -> tuple[subprocess.CompletedProcess, list[str]]:
    """Run in a network of its own, without a route, and note every network call it makes."""
    netless = (
        ["unshare", "--net"] if not subprocess.call(["unshare", "--net", "true"], stderr=subprocess.DEVNULL) else []
    )
    done = subprocess.run(
        [*netless, *TRACE, "-o", str(log), *words], cwd=folder, capture_output=True, text=True, timeout=300,
        env=dict(os.environ, TERM="dumb"),
    )  # fmt: skip
    calls = [line for line in log.read_text().splitlines() if re.search(r"\b(socket|connect|send\w+|bind)\(", line)]
    return done, calls


needs_tools = pytest.mark.skipif(
    not shutil.which("strace") or not shutil.which("unshare"), reason="strace or unshare is not installed"
)


@needs_tools
def test_no_network_at_run_time(tmp_path, record_property):
    (tmp_path / "table.csv").write_text(f"code,n\n{code(0)},5\n{code(1)},7\n")
    done, calls = alone([sys.executable, "-c", RUN, json.dumps(COMMANDS)], tmp_path, tmp_path / "log")
    if "Operation not permitted" in done.stderr and not (tmp_path / "demo").exists():
        pytest.skip("strace may not trace here")
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "out" / "report.html").exists() and (tmp_path / "out-report.html").exists()
    assert calls == []
    told(record_property, "no network at run time", "demo, release with exports, verify, report, without a route",
         "no socket was opened")  # fmt: skip


@needs_tools
def test_a_network_call_would_be_seen(tmp_path, record_property):
    """The twin: one import of a library that asks a name server."""
    ask = "import socket\ntry:\n socket.getaddrinfo('example.org', 80)\nexcept OSError:\n pass"
    done, calls = alone([sys.executable, "-c", ask], tmp_path, tmp_path / "log")
    if done.returncode:
        pytest.skip("strace may not trace here")
    assert calls
    told(record_property, "the same watch on a program that looks a name up", "one program", f"{len(calls)} calls seen")


def code(col: int) -> int:
    from kasuri.meshcode import encode

    return int(encode([8400], [6080 + col], "500m")[0])
