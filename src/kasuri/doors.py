"""A package's front door: names that are imported at their first use, so that `import kasuri` is light."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, home: Mapping[str, str], packages: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of `package`: `home` says in which of its modules each name lives, `packages`
    which of them are names themselves."""

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(f"{package}.{home[name]}"), name)
        if name in packages:
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({"__version__", *home, *packages} if package == "kasuri" else {*home, *packages})

    return find, names
