"""k-anonymity: recodings, ways to anonymise, and audits that say what is a guarantee and what is not."""

from kasuri.kanon.anonymized import Anonymized
from kasuri.kanon.audit import Audit, audit
from kasuri.kanon.classes import Measures, measure
from kasuri.kanon.delta import Sampling, exact_delta, least_epsilon, least_k, li_qardaji_su_delta
from kasuri.kanon.hierarchy import Hierarchy, categories, categories_csv, dates, mesh, numbers
from kasuri.kanon.mondrian import mondrian
from kasuri.kanon.pk import Randomized, pk_anonymize, pk_of
from kasuri.kanon.recoding import Recoding, Sensitive
from kasuri.kanon.sample import ChosenCut, choose_cut, sample_then_anonymize
from kasuri.kanon.specialize import specialize

__all__ = [
    "Anonymized",
    "Audit",
    "ChosenCut",
    "Hierarchy",
    "Measures",
    "Randomized",
    "Recoding",
    "Sampling",
    "Sensitive",
    "audit",
    "categories",
    "categories_csv",
    "choose_cut",
    "dates",
    "exact_delta",
    "least_epsilon",
    "least_k",
    "li_qardaji_su_delta",
    "measure",
    "mesh",
    "mondrian",
    "numbers",
    "pk_anonymize",
    "pk_of",
    "sample_then_anonymize",
    "specialize",
]
