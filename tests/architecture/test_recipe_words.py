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
SPOKEN = {
    "__init__.py": {"_HOME", "_BESIDE"},
    "_kernels/__init__.py": {"MODULES", "DEMO"},  # modules of kernels
    "cli/ledger.py": {"open_ledger", "_window"},  # the default of an option; a key of what is printed
    "cli/local.py": {"plan"},  # a field
    "cli/plan.py": {"_recipes"},  # handed to the reader of recipes, as what was typed
    "cli/release.py": {"release"},  # the default of an option
    "job/__init__.py": {"_HOME"},
    "job/models.py": {"Job", "Job._spark_default"},  # defaults
    "job/parameters.py": {"refuse_public"},  # what an argument is called
    "manifest/package.py": {"_field", "post_processing"},  # replaced in a sentence; a field
    "noise/laws.py": {"DiscreteLaplace", "FloatLaplace"},
    "public.py": {"PublicMatrix.__post_init__"},  # in a message
    "published/bars.py": {"CountBars"},  # in a sentence
    "recipes/best.py": {"Best._candidates"},  # arguments of those it makes
    "recipes/descent.py": {"HalvingRun.descent"},  # stored
    "recipes/shares.py": {"rule"},  # presets of shares
    "refine/project.py": {"NegL2", "NonnegLasso", "Lasso"},
    "report/local.py": {"estimate_page"},  # a field
    "schema/window.py": {"Window.spans"},  # a day
    "spark/cluster.py": {"release"},  # a folder
    "study/outlook.py": {"Outlook.to_json", "everything"},  # a key of what is printed; a name in a list
    "words/bias.py": {"MEASURED"},
    "words/japanese.py": {"PHRASES", "MEASURED", "REFINED"},
}
"""Where a word is written at all, outside the constructors, what they store, the reader and the makers of trees. A text
that is not written cannot be compared with, in whatever form; what these do with it the other tests look at."""
STORING = {"stored", "further"}
"""Methods of recipes and runs that say what is stored."""
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


def named(tree: ast.AST) -> set[str]:
    """The names of recipes that a module makes once for all, as it writes them: `PLAIN.name`, `geometric().name`."""
    made = {make.__name__ for make in RECIPES.values()}
    found = {f"{ast.unparse(n)}.name" for n in ast.walk(tree) if isinstance(n, ast.Call) and last(n.func) in made}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            pairs = [(target, node.value)]  # type: ignore[attr-defined]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):  # type: ignore[attr-defined]
                pairs = list(zip(target.elts, node.value.elts, strict=False))  # type: ignore[attr-defined]
            for one, value in pairs:
                if isinstance(value, ast.Call) and last(value.func) in made:
                    found.add(f"{last(one)}.name")
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
            bound[name] | handed(ast.parse(text), bound) | named(ast.parse(text)),
        )
    ]  # fmt: skip
    assert not found, "\n".join(found)


def said_in(text: str, words: Collection[str]) -> set[str]:
    """The definitions in which one of `words` is written, in one piece or joined from several; docstrings apart."""
    found: set[str] = set()

    def below(node: ast.AST, scope: str) -> None:
        bodies = node.body if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) else []
        for child in ast.iter_child_nodes(node):
            own = scope
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                own = f"{scope}.{child.name}".lstrip(".")
            elif isinstance(child, (ast.Assign, ast.AnnAssign)) and not scope:
                own = last(child.targets[0] if isinstance(child, ast.Assign) else child.target)
            if whole(child) in words and not (isinstance(child, ast.Expr) and child in bodies):
                found.add(own)
            if not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
                below(child, own)

    below(ast.parse(text), "")
    return found


def whole(node: ast.AST) -> str | None:
    """A text that is written out: in one piece, joined with "+", or as a formatted text without anything in it."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    elif isinstance(node, ast.JoinedStr):
        parts = node.values
    texts = [whole(part) for part in parts]
    return "".join(filter(None, texts)) if texts and None not in texts else None


def test_a_word_of_a_recipe_is_written_in_few_places():
    """Whatever the form of a comparison: it needs the word."""
    words, made = stored_words(), makers()
    found: dict[str, set[str]] = {}
    for name, text in sorted(files().items()):
        if name in READERS or name.startswith((*OTHERS, "reproduce/", "trees/")):
            continue
        scopes = said_in(text, words)
        if name.startswith("recipes/"):  # module constants and fields of classes have no dot and are no functions
            functions = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
            scopes = {
                scope
                for scope in scopes
                if scope not in made
                and (scope in functions or ("." in scope and scope.rpartition(".")[2] not in STORING))
            }
        if scopes - SPOKEN.get(name, set()):
            found[name] = scopes - SPOKEN.get(name, set())
    assert not found


@pytest.mark.parametrize("code", [
    'def f(name):\n    for word in ("geometric", "laplace"):\n        if name == word: pass',
    'def f(name):\n    plain = "geometric"\n    return name == plain', 'def f(name, x="geometric"): return x == name',
    'def f(name): return bool({"geometric"} & {name})', 'def f(name): return not {name}.isdisjoint(("geometric",))',
    'def f(name): return re.compile("geometric").match(name)', 'def f(name): return {name: True}["geometric"]',
    'def f(name): return name == "geo" + "metric"', 'def f(name): return name == f"geometric"',
    'def f(names): return filter("geometric".__eq__, names)', 'def f(name): return hash(name) == hash("geometric")',
    'def f(name): return [one for one in ["geometric"] if one is name]', 'f = lambda name, x="geometric": x == name',
])  # fmt: skip
def test_a_word_is_seen_wherever_it_is_written(code):
    assert said_in(code, {"geometric"}) == {"f"}


def test_a_docstring_writes_no_word():
    assert not said_in('def f():\n    """geometric"""\n\nX = 1\n"""geometric"""', {"geometric"})


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
    "x = name == best().name", "PLAIN = geometric()\nx = name == PLAIN.name",
    "USUAL, PLAIN = best(), ks.geometric()\nx = name in (1, PLAIN.name)",
])  # fmt: skip
def test_names_of_recipes_that_were_made_are_seen(code):
    assert list(compared(code, (), (), named(ast.parse(code))))


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
