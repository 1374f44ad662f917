"""The import table: which module may import which. The layout is the architecture (docs/architecture.md)."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "kasuri"

PUBLIC = {"errors", "meshcode", "schema", "privacy"}
TABLE: dict[str, set[str]] = {
    "bounded": {"errors"},
    "errors": set(),
    "aside": {"errors"},
    "meshcode": {"errors", "_kernels"},
    "names": {"errors"},
    "schema": {"errors", "names", "meshcode"},
    "rng": {"errors"},
    "public": {"errors", "names", "schema"},
    "strategy": {"errors", "schema"},
    "project": {"errors", "_kernels"},
    "privacy": {"errors", "schema"},
    "accounting": {"errors", "schema", "privacy"},
    "ledger": {"errors", "names", "schema", "privacy", "accounting", "ledger"},
    "table": {"errors", "names", "schema"},
    "order": {"errors", "meshcode", "schema", "_kernels"},
    "transform": {"order", "schema"},
    "noise": {"errors", "rng", "_kernels"},
    "refine": {"errors", "_kernels"},
    "published": {"errors", "meshcode", "schema", "privacy", "ledger", "regions", "intervals", "store"},
    "regions": {"errors", "order", "schema", "_kernels"},
    "estimate": {"errors", "noise", "order", "published", "schema", "visited", "_kernels"},
    "bounds": {"estimate", "regions", "_kernels"},
    "intervals": {"bounds", "errors", "estimate", "noise", "order", "published", "regions", "schema", "transform"},
    "manifest": {"aside", "bounded", "errors", "names", "schema", "privacy", "ledger", "noise", "transform",
                 "published", "intervals", "mechanism", "recipes", "refine", "replay", "store", "report", "manifest"},
    "engine": {"errors", "noise", "order", "published", "refine", "rng", "_kernels"},
    "visited": set(),
    "bayes": {"order", "public", "refine", "schema", "visited", "_kernels"},
    "shares": {"order"},
    "mechanism": {"errors", "schema", "privacy", "accounting", "noise", "order", "public", "shares", "strategy",
                  "transform", "visit", "visited"},
    "choose": {"bayes", "errors", "mechanism", "noise", "order", "privacy", "refine", "rng", "shares", "visit",
               "visited", "_kernels"},
    "recipes": {"errors", "privacy", "public", "schema", "shares", "strategy", "mechanism", "recipes"},
    "replay": {"choose", "errors", "mechanism", "noise", "order", "published", "recipes", "refine", "rng", "transform",
               "visit", "visited", "_kernels"},
    "draw": {"errors", "schema", "privacy", "ledger", "rng", "table", "transform", "noise", "project", "refine",
             "published", "engine", "mechanism", "recipes", "choose", "visit", "_kernels", "<front>"},
    "evaluate": {"errors", "schema", "privacy", "rng", "table", "mechanism", "regions", "published", "draw"},
    "visit": {"engine", "errors", "noise", "order", "rng", "visited", "_kernels"},
    "plan": {"errors", "schema", "privacy", "noise", "transform", "mechanism", "table", "visited", "intervals",
             "evaluate"},
    "ingest": {"errors", "names", "schema", "meshcode", "public", "table", "ingest", "_kernels"},
    "parameters": {"errors", "schema", "public", "ingest", "mechanism", "recipes"},
    "spark": {"errors", "names", "schema", "privacy", "ledger", "rng", "table", "order", "noise", "refine", "published",
              "engine", "visit", "visited", "choose", "mechanism", "recipes", "draw", "ingest", "manifest", "store",
              "spark", "_kernels"},
    "job": {"errors", "schema", "privacy", "table", "ingest", "ledger", "mechanism", "parameters", "draw",
            "published", "store", "spark"},
    "store": {"aside", "bounded", "errors", "names", "schema", "meshcode", "privacy", "published", "regions",
              "intervals", "manifest", "store"},
    "kanon": {"aside", "errors", "names", "schema", "meshcode", "privacy", "rng", "noise", "kanon", "_kernels"},
    "report": {"aside", "bounded", "errors", "meshcode", "schema", "published", "report"},
    "local": {"aside", "bounded", "errors", "schema", "privacy", "rng", "noise", "refine", "local", "_kernels"},
    "shuffle": {"aside", "bounded", "errors", "names", "schema", "privacy", "rng", "ledger", "published", "ingest",
                "local", "report", "shuffle", "_kernels"},
    "examples": {"schema"},
    "reproduce": {"<front>", "errors", "schema", "examples", "ingest", "kanon", "local", "meshcode", "noise", "order",
                  "plan", "project", "report", "reproduce", "rng", "shuffle", "_kernels"},
    "cli": {"<front>", "aside", "cli", "errors", "names", "schema", "privacy", "accounting", "ledger", "manifest",
            "ingest", "job", "kanon", "local", "parameters", "store", "plan", "report", "reproduce", "shuffle",
            "examples"},
    "_kernels": {"_kernels"},
    "<front>": set(),
}  # fmt: skip
"""Module (or package) -> what it may import from kasuri, lazily or not. <front> is `import kasuri`."""


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        inner = path.relative_to(SOURCE)
        name = inner.parts[0].removesuffix(".py")
        yield ("<front>" if name == "__init__" else name), path


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "kasuri" else [node.module]
            )
        else:
            continue
        for name in names:
            parts = (name or "").split(".")
            if parts[0] == "kasuri":
                is_module = len(parts) > 1 and ((SOURCE / f"{parts[1]}.py").exists() or (SOURCE / parts[1]).is_dir())
                found.add(parts[1] if is_module else "<front>")
    return found


@pytest.mark.parametrize(("name", "path"), list(modules()), ids=lambda v: str(v) if isinstance(v, str) else v.name)
def test_imports_follow_the_table(name: str, path: Path):
    assert name in TABLE, f"{name} is not in the import table"
    assert imported(path) <= TABLE[name], f"{path.name} imports {sorted(imported(path) - TABLE[name])}"


@pytest.mark.parametrize("start", ["refine", "project", "strategy", "public", "bayes"])
def test_refinement_cannot_reach_counts_or_noise(start):
    reach, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in reach:
            reach.add(name)
            todo += TABLE[name]
    assert not reach & {"table", "noise", "rng", "draw"}


@pytest.mark.parametrize("start", ["choose", "replay", "report"])
def test_what_is_chosen_or_shown_cannot_reach_counts(start):
    reach, todo = set(), [start]
    while todo:
        name = todo.pop()
        if name not in reach and name != "<front>":
            reach.add(name)
            todo += TABLE[name]
    assert "table" not in reach


def test_no_module_is_too_long():
    long = {
        str(path.name): n for _, path in modules() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 600
    }
    assert not long


def test_front_door_is_small_sorted_and_complete():
    import kasuri

    assert kasuri.__all__ == sorted(kasuri.__all__)
    assert len(kasuri.__all__) <= 40
    for name in kasuri.__all__:
        assert getattr(kasuri, name) is not None
