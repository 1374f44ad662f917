"""Pure post-processing: noisy numbers in, a consistent table out. Sees no counts and draws no noise.

Every function here may be applied to a differentially private output without changing its guarantee. Coins are
handed in as bits that belong to the refinement alone.
"""

VERSION = 1
"""Of the refinements and their kernels, as releases record it: another number for the same measurements (not a faster
way to the same) needs a higher version. tests/golden/test_old_release.py fails where one is missing."""
LARGEST = 3 << 61
"""A noisy total is cut to this (2^62 people and much noise), so that sums fit 64 bits."""
