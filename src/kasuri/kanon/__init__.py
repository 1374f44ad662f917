"""k-anonymity: recodings, ways to anonymise, and audits that say what is a guarantee and what is not."""

from kasuri.kanon.anonymized import Anonymized
from kasuri.kanon.classes import Measures, measure
from kasuri.kanon.hierarchy import Hierarchy, categories, categories_csv, dates, mesh, numbers
from kasuri.kanon.recoding import Recoding
from kasuri.kanon.specialize import specialize

__all__ = [
    "Anonymized",
    "Hierarchy",
    "Measures",
    "Recoding",
    "categories",
    "categories_csv",
    "dates",
    "measure",
    "mesh",
    "numbers",
    "specialize",
]
