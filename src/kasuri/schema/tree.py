"""Tree: a public hierarchy over labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kasuri import names
from kasuri.errors import DomainError, raise_faults


@dataclass(frozen=True)
class Tree:
    """A public hierarchy over labels, any fan-outs: a node is a label (leaf) or (name, children).

    >>> Tree.of({"east": ["a", "b"], "west": ["c"]}).leaves
    ('a', 'b', 'c')
    """

    children: tuple[Any, ...]

    @classmethod
    def of(cls, nested: Mapping[str, Any] | Sequence[Any]) -> Tree:
        return cls(_children(nested))

    def __post_init__(self) -> None:
        raise_faults(DomainError, names.first(_names(self.children), "a tree's node"))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        return tuple(label for label, _ in self.paths)

    @cached_property
    def paths(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """(label, child numbers from the root) of every leaf, left to right."""
        found: list[tuple[str, tuple[int, ...]]] = []

        def walk(children: tuple[Any, ...], path: tuple[int, ...]) -> None:
            for i, child in enumerate(children):
                if isinstance(child, str):
                    found.append((child, (*path, i)))
                else:
                    walk(child[1], (*path, i))

        walk(self.children, ())
        return tuple(found)

    def to_json(self) -> list[Any]:
        def out(children: tuple[Any, ...]) -> list[Any]:
            return [child if isinstance(child, str) else {child[0]: out(child[1])} for child in children]

        return out(self.children)


def _children(nested: Any) -> tuple[Any, ...]:
    if isinstance(nested, Mapping):
        return tuple((str(name), _children(below)) for name, below in nested.items())
    if isinstance(nested, str) or not isinstance(nested, Sequence):
        raise DomainError("a tree is a mapping {name: children} or a list of labels and such mappings")
    out: list[Any] = []
    for child in nested:
        if isinstance(child, str):
            out.append(child)
        else:
            out.extend(_children(child))
    if not out:
        raise DomainError("a tree node needs at least one child")
    return tuple(out)


def _names(children: Sequence[Any]) -> list[str]:
    """The names of all nodes, leaves among them."""
    return [
        name for child in children for name in ([child] if isinstance(child, str) else [child[0], *_names(child[1])])
    ]
