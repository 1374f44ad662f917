"""Faults of k-anonymity with a guarantee."""

from planted import Attack, Fault

FAULTS = [
    Fault("small classes are shown", "kasuri.kanon.sample:sample_then_anonymize", "shown = sizes[of] >= k",
          "shown = sizes[of] >= 1",
          attacks=(Attack("sample_then_anonymize", "a class of 0 or 1", runs=1000, short=True),)),
]  # fmt: skip
