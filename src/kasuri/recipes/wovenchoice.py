"""A woven tree whose shares are chosen after the charge: what runs that choose from noisy numbers have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from kasuri.arrays import Int
from kasuri.errors import FormatError
from kasuri.noise.rng import Streams
from kasuri.published.bars import Bars, NoBars
from kasuri.published.measurements import Measurements
from kasuri.recipes.descent import by_key
from kasuri.recipes.joined import ChosenBlocks, JoinedBlocks, Tally
from kasuri.recipes.mechanism import AreaError, Bias, Drawn, NoForm, Replay, TreeRun, Words
from kasuri.recipes.woven import WovenRun


@dataclass(frozen=True, eq=False)
class ChoiceRun(TreeRun):
    """`choices`: what may be chosen, each with shares that sum to 1."""

    choices: Mapping[str, WovenRun]
    signed: ClassVar[bool] = False
    bias: ClassVar[Bias] = Bias.TREES
    publishes: ClassVar[bool] = True
    chooses: ClassVar[tuple[str, ...]] = ("preset", "tuning", "shares")

    def sharing(self, words: Words) -> Self:
        """As `WovenRun.sharing`, for what was chosen; before the draw nothing is."""
        chosen = str(words.get("preset"))
        if chosen not in self.choices:
            return self
        return replace(self, choices={**self.choices, chosen: self.choices[chosen].sharing(words["shares"])})

    def replay(self, drawn: Drawn) -> Replay:
        return self.choices[str(drawn.words["preset"])].replay(drawn)

    def bars(self, measurements: Measurements | None) -> Bars | NoBars:
        """Of the choice that measures at the scales that are told."""
        if measurements is None:
            return NoBars(f"{self.mechanism.name} with these options publishes no measurements")
        seen = {level: measurements.scale[level] for level in np.unique(measurements.level).tolist()}
        for run in self.choices.values():
            if seen.items() <= run.told_scales.items():
                return run.bars(measurements)
        raise FormatError("no choice of this recipe measures at these scales")

    def after(self, drawn: Drawn, sizes: Sequence[int] = ()) -> list[AreaError] | NoForm:
        return self.choices[str(drawn.words["preset"])].after(drawn, sizes)

    def view_errors(self) -> list[AreaError]:
        """Of the choice that has the largest one: which is taken, nobody knows before the pilot."""
        found = [{one.view: one for one in run.view_errors()} for run in self.choices.values()]
        shared = [view for view in found[0] if all(view in other for other in found)]
        return [replace(found[0][view], rmse=max(one[view].rmse for one in found), bound=True) for view in shared]

    def errors(self, sizes: Sequence[int] = ()) -> NoForm:
        return NoForm(f"no closed form for {self.mechanism.name}: its error depends on the table")

    @abstractmethod
    def first(self) -> Tally:
        """What is measured first."""

    @abstractmethod
    def taken(self, y: Int, streams: Streams) -> JoinedBlocks:
        """The choice that its noisy numbers make, which measures them no more."""

    def draw(self, cells: Int, values: Int, streams: Streams, threads: int) -> Drawn:
        keys, values = by_key(self.tree, self.domain, cells, values)
        cut = self.blocks().chosen(keys, values, streams)
        measured = cut.measured(keys, values, streams, threads)
        del keys, values
        return cut.finish(*measured)

    def blocks(self) -> ChosenBlocks:
        return ChosenBlocks(tuple(run.visit for run in self.choices.values()), self.first(), self._chosen)

    def _chosen(self, y: Int | None, streams: Streams) -> JoinedBlocks:
        assert y is not None
        return self.taken(y, streams)
