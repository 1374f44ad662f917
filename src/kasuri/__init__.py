"""kasuri: population tables and mesh statistics with differential privacy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kasuri import doors

__version__ = "0.1.0"

_HOME = {
    "Area": "published.area",
    "BudgetError": "errors",
    "Calendar": "series",
    "Counts": "table",
    "Criterion": "published.acceptance",
    "Domain": "schema",
    "DomainError": "errors",
    "FormatError": "errors",
    "Grid": "schema",
    "Guarantee": "privacy",
    "H3": "schema",
    "KasuriError": "errors",
    "Ledger": "budget.ledger",
    "Mechanism": "recipes",
    "Mesh": "schema",
    "Nominal": "schema",
    "NumericsError": "errors",
    "Ordered": "schema",
    "PrivacyError": "errors",
    "ProtocolError": "errors",
    "PublicMatrix": "public",
    "PublicTable": "public",
    "RegionMap": "schema.maps",
    "Regions": "schema",
    "Release": "published.release",
    "Series": "series",
    "Time": "schema",
    "Tree": "schema",
    "Unit": "schema",
    "Window": "schema",
    "accept": "study.accept",
    "auto": "recipes",
    "bayes_tree": "recipes",
    "best": "recipes.best",
    "compare": "study.evaluate",
    "count": "ingest",
    "geometric": "recipes",
    "haar_topdown": "recipes",
    "laplace": "recipes",
    "lasso": "recipes",
    "neg_l2_simplex": "recipes",
    "nonneg_lasso": "recipes",
    "plan": "study.plan",
    "privelet": "recipes",
    "refined_tree": "recipes",
    "release": "draw",
    "secure": "noise.rng",
    "seeded": "noise.rng",
    "simplex": "recipes",
    "verify": "manifest.verify",
    "woven_tree": "recipes",
}
"""Every name and the module it is imported from at first use."""

_PACKAGES = ("kanon", "local", "recipes", "shuffle", "spark")
"""Sibling packages that `ks.<name>` imports at first use."""

_BESIDE = {
    *("Calendar", "Criterion", "PublicMatrix", "accept", "auto", "laplace", "lasso"),
    *("neg_l2_simplex", "nonneg_lasso", "privelet", "simplex"),
}
"""What few callers need lives in `ks.recipes`, `kasuri.public` and `kasuri.series`; here it keeps working by name."""

__all__ = sorted(_HOME.keys() - _BESIDE)

if TYPE_CHECKING:  # what a type checker and an editor see: a misspelt name fails there
    from kasuri import kanon as kanon
    from kasuri import local as local
    from kasuri import recipes as recipes
    from kasuri import shuffle as shuffle
    from kasuri import spark as spark
    from kasuri.budget.ledger import Ledger as Ledger
    from kasuri.draw import release as release
    from kasuri.errors import BudgetError as BudgetError
    from kasuri.errors import DomainError as DomainError
    from kasuri.errors import FormatError as FormatError
    from kasuri.errors import KasuriError as KasuriError
    from kasuri.errors import NumericsError as NumericsError
    from kasuri.errors import PrivacyError as PrivacyError
    from kasuri.errors import ProtocolError as ProtocolError
    from kasuri.ingest import count as count
    from kasuri.manifest.verify import verify as verify
    from kasuri.noise.rng import secure as secure
    from kasuri.noise.rng import seeded as seeded
    from kasuri.privacy import Guarantee as Guarantee
    from kasuri.public import PublicMatrix as PublicMatrix
    from kasuri.public import PublicTable as PublicTable
    from kasuri.published.acceptance import Criterion as Criterion
    from kasuri.published.area import Area as Area
    from kasuri.published.release import Release as Release
    from kasuri.recipes import Mechanism as Mechanism
    from kasuri.recipes import auto as auto
    from kasuri.recipes import bayes_tree as bayes_tree
    from kasuri.recipes import geometric as geometric
    from kasuri.recipes import haar_topdown as haar_topdown
    from kasuri.recipes import laplace as laplace
    from kasuri.recipes import lasso as lasso
    from kasuri.recipes import neg_l2_simplex as neg_l2_simplex
    from kasuri.recipes import nonneg_lasso as nonneg_lasso
    from kasuri.recipes import privelet as privelet
    from kasuri.recipes import refined_tree as refined_tree
    from kasuri.recipes import simplex as simplex
    from kasuri.recipes import woven_tree as woven_tree
    from kasuri.recipes.best import best as best
    from kasuri.schema import H3 as H3
    from kasuri.schema import Domain as Domain
    from kasuri.schema import Grid as Grid
    from kasuri.schema import Mesh as Mesh
    from kasuri.schema import Nominal as Nominal
    from kasuri.schema import Ordered as Ordered
    from kasuri.schema import Regions as Regions
    from kasuri.schema import Time as Time
    from kasuri.schema import Tree as Tree
    from kasuri.schema import Unit as Unit
    from kasuri.schema import Window as Window
    from kasuri.schema.maps import RegionMap as RegionMap
    from kasuri.series import Calendar as Calendar
    from kasuri.series import Series as Series
    from kasuri.study.accept import accept as accept
    from kasuri.study.evaluate import compare as compare
    from kasuri.study.plan import plan as plan
    from kasuri.table import Counts as Counts
else:
    __getattr__, __dir__ = doors.lazy("kasuri", _HOME, _PACKAGES)
