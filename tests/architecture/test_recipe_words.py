"""Words of recipes are compared where a recipe is made from them, and nowhere else: a recipe answers for itself."""

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

import kasuri
from kasuri.recipes import RECIPES
from kasuri.recipes.mechanism import Mechanism, Run
from kasuri.schema import Axis, Domain, Mesh, Ordered, Unit

SOURCE = Path(kasuri.__file__).parent
READERS = ("recipes/read.py",)
OTHERS = ("local/", "shuffle/", "report/shuffle.py")
"""Words of reports from devices and parties, which have makers of their own; `laplace` is one of them too."""
TREES = {"trees/order.py": {"make", "halved", "ignoring"}, "trees/weave.py": {"make"}}
"""The words of trees, where trees are made from them."""
SAID = {
    "__init__.py": {"_HOME": "the front door", "_BESIDE": "the front door"},
    "recipes/__init__.py": {"RECIPES": "the constructors by their names"},
    "recipes/shares.py": {"BAYES": "presets of shares, one of which is called `sparse`"},
    "reproduce/matsumoto2025.py": {"RECIPES": "the rows of a paper's table"},
    "trees/order.py": {"MAKERS": "the trees by their words"},
    "words/bias.py": {"MEASURED": "figures of studies, of each recipe with its defaults"},
    "words/japanese.py": {"MEASURED": "translated", "PHRASES": "translated", "REFINED": "translated"},
}
"""Lists by which something is made or said, and nothing is decided, and what they are."""
ASKED = {
    "startswith", "endswith", "removeprefix", "removesuffix", "find", "index", "count", "get", "pop", "setdefault",
    "match", "fullmatch", "search", "__eq__", "__ne__", "__contains__", "__getitem__", "eq", "ne", "contains",
}  # fmt: skip
"""Functions that compare a text with what they are given, or look it up."""


def files() -> dict[str, str]:
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def stored_words() -> set[str]:
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
    return words - {"none", "auto", "chosen"}  # words of much else


def makers() -> set[str]:
    """The constructors in RECIPES, and the functions that they hand a caller's words to: these make a value of them."""
    calls: dict[str, set[str]] = {}
    for path in (SOURCE / "recipes").glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                called = {one.func.id for one in ast.walk(node) if isinstance(one, ast.Call) and is_name(one.func)}
                calls[node.name] = calls.get(node.name, set()) | called
    found: set[str] = set()
    left = {make.__name__ for make in RECIPES.values()}
    while left:
        found |= left
        left = {name for one in left for name in calls[one] if name in calls} - found
    return found


def families() -> set[str]:
    """The classes of recipes and of their runs, but for those that everything may ask for."""

    def below(kind: type) -> set[str]:
        return {one.__name__ for one in kind.__subclasses__()}.union(*(below(one) for one in kind.__subclasses__()))

    return below(Mechanism) | below(Run)


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def last(node: ast.AST | None) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def says(node: ast.AST | None, words: Collection[str], held: Collection[str]) -> bool:
    """Is it one of the words, one of the names that are `held` to be one, or a collection that has one?"""
    if isinstance(node, ast.Constant):
        return node.value in words
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        parts: list[ast.AST | None] = [*node.elts]
    elif isinstance(node, ast.Dict):
        parts = [*node.keys]
    elif isinstance(node, ast.BinOp):
        parts = [node.left, node.right]
    elif isinstance(node, ast.Starred):
        parts = [node.value]
    elif isinstance(node, ast.Call) and last(node.func) in ("frozenset", "set", "tuple", "dict", "MappingProxyType"):
        if any(one.arg in words for one in node.keywords):
            return True
        parts = [*node.args]
    else:
        return ast.unparse(node) in held if node is not None else False
    return any(says(part, words, held) for part in parts)


def constants(tree: ast.AST, words: Collection[str], said: Collection[str] = ()) -> set[str]:
    """Names in capitals that are one of the words, or a collection that has one, but for those in which it is `said`
    only."""
    found: set[str] = set()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in map(last, targets):
            if name.isupper() and name not in said and says(getattr(node, "value", None), words, found):
                found.add(name)
    return found


def handed(tree: ast.AST, everywhere: dict[str, set[str]]) -> set[str]:
    """The constants of other modules as this one writes them: by name, or by their module's."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = node.module.removeprefix("kasuri").removeprefix(".").replace(".", "/")
            own = everywhere.get(f"{module}.py", set()) | everywhere.get(f"{module}/__init__.py", set())
            for one in node.names:
                inner = everywhere.get(f"{module}/{one.name}.py", set())
                found |= {one.asname or one.name} if one.name in own else set()
                found |= {f"{one.asname or one.name}.{name}" for name in inner}
    return found


def parts_of(node: ast.AST) -> list[ast.AST | None]:
    """What an expression compares or looks up: none where it does neither, or reads a field that it writes out."""
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.MatchValue):
        return [node.value]
    if isinstance(node, ast.MatchMapping):
        return [*node.keys]
    if isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        return [node.value]
    if isinstance(node, ast.Call) and last(node.func) in ASKED:
        field = last(node.func) in ("get", "pop", "setdefault", "__getitem__")
        if field and node.args and isinstance(node.args[0], ast.Constant):
            return []
        return [*([] if field else node.args[:2]), node.func.value if isinstance(node.func, ast.Attribute) else None]
    return []


def compared(
    text: str, words: Collection[str], made: Collection[str] = (), held: Collection[str] = ()
) -> Iterator[str]:
    """Every comparison, case and look-up by one of `words`, or by a constant that is `held` to be one, but for those in
    functions that are `made` for it."""
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in made)]
    for node in ast.walk(tree):
        if any(says(part, words, held) for part in parts_of(node)):
            yield f"{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]


def asked_for(text: str, kinds: Collection[str]) -> Iterator[str]:
    """Every question whether something is of one of these classes."""
    for node in ast.walk(ast.parse(text)):
        asks: list[ast.AST] = []
        if isinstance(node, ast.Call) and last(node.func) in ("isinstance", "issubclass"):
            asks = node.args[1:2]
        elif isinstance(node, ast.MatchClass):
            asks = [node.cls]
        elif isinstance(node, ast.Compare):
            asks = [node.left, *node.comparators]
        if any(last(part) in kinds for one in asks for part in ast.walk(one)):
            yield f"{node.lineno}: {ast.unparse(node)}"  # type: ignore[attr-defined]


def test_no_other_file_compares_the_words_of_recipes():
    words, texts, made = stored_words(), files(), makers()
    assert {"geometric", "sum_difference", "discrete Laplace", "morton2"} & words, words
    bound = {name: constants(ast.parse(text), words, SAID.get(name, ())) for name, text in texts.items()}
    found = [
        f"{name}:{where}"
        for name, text in sorted(texts.items())
        if name not in READERS and not name.startswith(OTHERS)
        for where in compared(
            text, words, made if name.startswith("recipes/") else TREES.get(name, ()),
            bound[name] | handed(ast.parse(text), bound),
        )
    ]  # fmt: skip
    assert not found, "\n".join(found)


def test_every_list_that_only_says_something_is_there():
    """So that a name that moved is not passed over in its new place, nor another one in its old place."""
    words, texts = stored_words(), files()
    for name, lists in SAID.items():
        assert lists.keys() <= constants(ast.parse(texts[name]), words), name


def test_no_other_file_asks_of_which_family_a_recipe_is():
    kinds = families()
    assert {"Cells", "CountTreeRun", "WovenTree"} <= kinds
    for name, text in sorted(files().items()):
        if not name.startswith("recipes/"):
            assert not list(asked_for(text, kinds)), name


@pytest.mark.parametrize("code", [
    'x = recipe.name == "geometric"', 'x = "geometric" != name', 'x = name in ("best", "geometric")',
    'x = "geometric" in name', 'x = name not in frozenset(("geometric", "laplace"))',
    'match name:\n    case "geometric":\n        pass', 'match name:\n    case "best" | "geometric":\n        pass',
    'match words:\n    case {"name": "geometric"}:\n        pass',
    'match name, 1:\n    case ("geometric", 1):\n        pass',
    'x = name.startswith("geometric")', 'x = name.endswith(("best", "geometric"))', 'x = name.find("geometric") < 0',
    'x = {"geometric": f, "best": g}[name]', 'x = {"geometric": f}.get(name, g)', 'x = dict(geometric=f)[name](1)',
    'x = ("best", "geometric").index(name)', 'x = re.fullmatch("geometric", name)',
    'x = operator.eq(name, "geometric")',
    'x = name.__eq__("geometric")', 'WORD = "geometric"\nx = name == WORD',
    '_SLOW = ("geometric",)\nx = name in (*_SLOW, 1)',
    'FAST: list[str] = ["geometric"]\nx = FAST.count(name)',
    'class A:\n    MAKERS = {"geometric": f}\nx = MAKERS[name]',
    'BY = {"geometric": f}\nALSO = BY | {"other": g}\nx = ALSO.get(name)',
    'def draw(name):\n    return name == "geometric"', 'x = lambda name: name == "geometric"',
])  # fmt: skip
def test_every_form_of_a_comparison_is_seen(code):
    words = {"geometric"}
    assert list(compared(code, words, {"geometric"}, constants(ast.parse(code), words)))


@pytest.mark.parametrize("code", [
    "from kasuri.trees.order import BY\nx = BY[name]", "from kasuri.trees import order\nx = name in order.BY",
    "from kasuri.trees import order as orders\nx = orders.BY.get(name)",
    "from kasuri.trees.order import BY as known\nx = known[name]",
])  # fmt: skip
def test_constants_of_other_modules_are_seen(code):
    assert list(compared(code, (), (), handed(ast.parse(code), {"trees/order.py": {"BY"}})))


@pytest.mark.parametrize("code", [
    'x = words["geometric"]', 'x = words.get("geometric")', 'x = geometric("geometric")', 'x = {"geometric": 1}',
    'def geometric(name):\n    return name == "geometric"',
])  # fmt: skip
def test_a_word_that_is_said_or_read_as_a_field_is_no_comparison(code):
    assert not list(compared(code, {"geometric"}, {"geometric"}))


@pytest.mark.parametrize("code", [
    "x = isinstance(run, CountTreeRun)", "x = isinstance(run, (Other, counttree.CountTreeRun))",
    "x = type(run) is CountTreeRun", "match run:\n    case CountTreeRun(cuts=1):\n        pass",
    "x = issubclass(type(run), CountTreeRun)",
])  # fmt: skip
def test_every_form_of_asking_for_a_family_is_seen(code):
    assert list(asked_for(code, {"CountTreeRun"}))
