"""Which of the plans spreads the draw of a run over a cluster."""

from __future__ import annotations

from kasuri.errors import DomainError, PrivacyError
from kasuri.recipes.cells import CellBlocks
from kasuri.recipes.counttree import CountBlocks
from kasuri.recipes.descent import HalvingBlocks
from kasuri.recipes.joined import ChosenBlocks
from kasuri.recipes.mechanism import Run
from kasuri.spark.joined import Joined
from kasuri.spark.subtrees import Cells, CountTree, Halves, Whole


def plan(run: Run) -> Whole | Cells | Halves | CountTree | Joined:
    """How `run` is cut into blocks; a recipe that is not drawn block by block is refused."""
    match run.blocks():
        case CellBlocks() as cut:
            return Cells(run, cut)
        case HalvingBlocks() as cut:
            return Halves(run, cut) if cut.engine.block_depth else Whole(run, cut.scales, cut.engine.order)
        case CountBlocks() as cut:
            whole = cut.visit.split + 1 == len(cut.visit.cuts)
            return Whole(run, cut.scales, cut.visit.order) if whole else CountTree(run, cut)
        case ChosenBlocks() as cut:
            return Joined(run, cut)
        case None:
            form = ", ".join(run.mechanism.told_apart())
            raise DomainError(
                f"{run.mechanism.name} does not run on Spark{f' ({form})' if form else ''}: it is not drawn and "
                "refined block by block. Use best, geometric, refined_tree, bayes_tree, woven_tree, or haar_topdown "
                "with transform='sum_difference' that is not dense"
            )
        case unknown:
            raise PrivacyError(f"blocks of the kind {type(unknown).__name__} are not known on Spark")
