"""Words of recipes are compared where a recipe is made from them, and nowhere else: a recipe answers for itself."""

import ast
from pathlib import Path

import pytest

import kasuri
from kasuri.recipes import RECIPES
from kasuri.schema import Axis, Domain, Mesh, Ordered, Unit

SOURCE = Path(kasuri.__file__).parent
READERS = ("recipes/read.py",)
OTHERS = ("shuffle/",)
"""Words of reports from devices and parties, which have makers of their own; `laplace` is one of them too."""


def stored_words():
    """The names of recipes and the words that a run of each stores for what it does."""
    words, unit = set(RECIPES), Unit(id="person", change="add-remove", max_cells=1)
    axes: list[Axis] = [Mesh("place", shape=(8, 8)), Ordered("age", 8)]
    for make in RECIPES.values():
        for axis in axes:
            try:
                stored = make().on(Domain.of(axis), unit, "1").words()
            except (TypeError, ValueError):
                continue
            words |= {stored[key] for key in ("transform", "noise", "refine", "order", "descent") if stored.get(key)}
    return words - {"none", "auto"}


def compared(text, words, makers=False):
    """(line, code) of every comparison, case or look-up among choices of one of `words`; where the file has `makers`,
    but for those in its functions: they read what a caller says, and make a value of it."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not (makers and isinstance(node, ast.FunctionDef))]
    for node in ast.walk(tree):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            parts = [node.value]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith"):
            parts = node.args
        for part in parts:
            said = part.elts if isinstance(part, (ast.Tuple, ast.List, ast.Set)) else [part]
            if any(isinstance(one, ast.Constant) and one.value in words for one in said):
                yield node.lineno, ast.unparse(node)


def test_no_other_file_compares_the_words_of_recipes():
    words = stored_words()
    assert {"geometric", "sum_difference", "discrete Laplace", "morton2"} & words, words
    names = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
    found = [
        f"{name}:{line}: {code}"
        for name, path in names.items()
        if name not in READERS and not name.startswith(OTHERS)
        for line, code in compared(path.read_text(), words, name.startswith("recipes/") or name == "trees/order.py")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("code", [
    'x = recipe.name == "geometric"', 'x = "geometric" != name', 'x = name in ("best", "geometric")',
    'match name:\n    case "geometric":\n        pass', 'x = name.startswith("geometric")',
])  # fmt: skip
def test_every_form_of_a_comparison_is_seen(code):
    assert list(compared(code, {"geometric"}))
