"""What a pilot chooses: the preset of a count tree, from noisy counts of one level and public facts alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kasuri import shares
from kasuri.mechanism import Run
from kasuri.privacy import decimal
from kasuri.visit import Whole


@dataclass(frozen=True)
class Choice:
    """A preset, how it refines, and why, in words that go into the release."""

    preset: str
    refine: Literal["bayes", "least squares"]
    why: str
    charged: str

    def words(self) -> dict[str, Any]:
        return {
            "preset": self.preset,
            "refined": self.refine,
            "tuning": {"source": self.why, "charged": self.charged},
        }


def choose(run: Run, pilot: Whole) -> Choice:
    """The preset for a run, from its pilot."""
    from kasuri._kernels.visit import water

    tree = run.trees[0]
    x, t = np.zeros(pilot.y.size), np.empty(1)
    water(pilot.y, np.array([0, pilot.y.size]), np.array([max(float(pilot.y.sum()), 0.0)]), x, t)
    cells = np.full(x.size, float(tree.stride(pilot.depth)))
    density, size = shares.facts(x, cells, float(run.scale))
    preset = shares.rule(density, size)
    why = f"pilot: about {density:.2f} of the cells not empty, {size:.0f} scales of noise each on average"
    share = decimal(shares.PILOT_SHARE)
    return Choice(preset, "bayes", why, f"{share} of epsilon, within the total; the pilot stays a measurement")
