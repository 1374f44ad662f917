"""Each fault that would break privacy or the result, planted as one changed line in the shipped code, is caught by a
named test that sees outputs alone. The same tests pass on the code as it is."""

import pytest
from planted import Fault, assert_caught

KERNEL = "_kernels/topdown.py"
LAW = "tests/distributions/test_release_law.py"
TREE_LAW = "tests/distributions/test_tree_law.py"
BASELINES = "tests/distributions/test_baselines_law.py"
INTERVAL_LAWS, INTERVALS = "tests/laws/test_interval_laws.py", "tests/contract/test_intervals.py"
BAYES_LAWS = "tests/laws/test_bayes.py"
SPARK = "tests/laws/test_spark_blocks.py"

FAULTS = [
    Fault("scale halved", "mechanism.py", "unit.most * cost / (loss * (1 - share))",
          "unit.most * cost / (loss * (1 - share)) / 2", f"{LAW}::test_total_law"),
    Fault("eq. 38 as printed", KERNEL, "- sums[_u(low)] - sums[_u(high)] + noise[_u(used)]",
          "- sums[_u(low)] - sums[_u(high)] + (noise[_u(used)] >> min(depth, 1))",
          f"{LAW}::test_split_law_level_by_level"),
    Fault("eq. 38 as printed, float form", "draw.py", "+= parts.weights * _noise(",
          "+= np.where(parts.weights > parts.weights[0], 0.5, 1) * parts.weights * _noise(",
          f"{LAW}::test_float_haar_law_level_by_level"),
    Fault("parity coin dropped", KERNEL, "D += odd * (2 * _bits(coins, coin, 1) - 1)", "D += odd",
          f"{LAW}::test_split_law"),
    Fault("clamp skipped", KERNEL, "D = min(max(D, -S), S)", "D = D + 0", f"{LAW}::test_split_law"),
    Fault("noise word used twice", KERNEL, "used += 1\n            if record",
          "used += depth & 1\n            if record", f"{LAW}::test_no_noise_word_is_used_twice"),
    Fault("blocks share a stream", "rng.py", "|{level}|{block}\"", "|{level}\"",
          f"{LAW}::test_blocks_do_not_share_a_stream"),
    Fault("purposes share a stream", "engine.py", 'streams.open("coin", level, block)',
          'streams.open("noise", level, block)', f"{LAW}::test_purposes_do_not_share_a_stream"),
    Fault("replace computed as add-remove", "order.py", 'if change == "add-remove":', "if True:",
          f"{LAW}::test_split_law"),
    Fault("a mask cell receives mass", KERNEL, "measured = s_left > 0 and s_right > 0", "measured = True",
          f"{LAW}::test_impossible_cells_are_exactly_zero"),
    Fault("a level's share counted twice", "mechanism.py", "(depth, self.scale / share)",
          "(depth, self.scale / share / 2)", f"{TREE_LAW}::test_measured_counts_have_the_law_of_their_level"),
    Fault("replace counted once in a tree", "mechanism.py", 'Fraction(1 if unit.change == "add-remove" else 2)',
          "Fraction(1)", f"{TREE_LAW}::test_measured_counts_have_the_law_of_their_level"),
    Fault("a public total charged as add-remove", "mechanism.py",
          "cost = transform.identity_cost(domain.size, unit.change)",
          'cost = transform.identity_cost(domain.size, "add-remove")',
          f"{BASELINES}::test_cells_have_the_noise_of_their_share"),
    Fault("the total's share not subtracted", "mechanism.py", "cost / (loss * (1 - share))", "cost / loss",
          f"{BASELINES}::test_cells_have_the_noise_of_their_share"),
    Fault("the total bought twice over", "mechanism.py", "unit.most / (loss * share)", "unit.most / loss",
          f"{BASELINES}::test_the_total_has_the_noise_of_its_share"),
    Fault("a threshold decided on the true count", "draw.py", "keep = own >= least", "keep = counts.values >= least",
          f"{BASELINES}::test_thresholded_cells_have_the_law_of_geometric"),
    Fault("gamma tuned on the truth", "draw.py", "_tuned(run, rule, cells, noisy, tally, total, streams, threads) if",
          "_tuned(run, rule, cells, noisy, Tally.of(noisy), int(counts.values.sum()), streams, threads) if",
          f"{BASELINES}::test_gamma_is_chosen_from_noisy_numbers_alone"),
    Fault("the sensitivity of a wrong column", "strategy.py", "most = int(np.abs(columns).sum(axis=1).max())",
          "most = int(np.abs(columns).sum(axis=1)[0])",
          f"{BASELINES}::test_measured_rows_have_the_noise_of_the_dearest_column"),
    Fault("a declared total read off the counts", "draw.py", "        total = run.declared_total\n",
          "        total = int(counts.values.sum())\n",
          "tests/contract/test_totals.py::test_the_declared_total_is_what_comes_out_not_the_truth"),
    Fault("cells of a hierarchy without noise", "draw.py",
          "nodes.size, threads, \"noise\", depth)\n", "nodes.size, threads, \"noise\", depth)\n"
          "        noise *= 0 if stride == 1 and run.mechanism.order == \"morton\" else 1\n",
          f"{BASELINES}::test_hierarchy_is_least_squares_of_its_levels"),
    Fault("coefficients with an eighth of their noise", "draw.py", "_noise(run, streams, len(rows), threads))",
          "_noise(run, streams, len(rows), threads) // (1 if run.mechanism.transform == \"matrix\" else 8))",
          f"{BASELINES}::test_measured_coefficients_have_the_noise_of_their_number"),
    Fault("replace counted once in a matrix", "strategy.py", 'if change == "replace":', "if False:",
          f"{BASELINES}::test_measured_rows_have_the_noise_of_the_dearest_column"),
    Fault("shares beyond epsilon", "mechanism.py",
          "if sum(by_height.values()) != 1 or min(by_height.values()) <= 0:", "if not by_height:",
          "tests/laws/test_visit.py::test_shares_that_do_not_sum_to_one_make_no_claim"),
    Fault("variance halved", "estimate.py", "np.full(y.size, laplace_variance(scale))",
          "np.full(y.size, laplace_variance(scale) / 2)",
          f"{INTERVAL_LAWS}::test_estimates_and_variances_are_those_of_least_squares"),
    Fault("a level's scale ignored", "estimate.py", "max(measured.scale[cuts[at]], LEAST_SCALE)",
          "max(measured.scale[cuts[-1]], LEAST_SCALE)",
          f"{INTERVAL_LAWS}::test_estimates_and_variances_are_those_of_least_squares"),
    Fault("not stretched to the released value", "intervals.py",
          "return np.minimum(np.maximum(low, 0.0), values), np.maximum(np.maximum(high, 0.0), values)",
          "return np.maximum(low, 0.0), np.maximum(high, 0.0)",
          f"{INTERVALS}::test_the_released_value_is_inside_or_there_is_a_reason"),
    Fault("no upper limit for absent cells", "bounds.py", "upper = np.where(shut_in, cap, np.minimum(upper, cap))",
          "upper = np.where(shut_in, 0.0, np.minimum(upper, cap))",
          f"{INTERVALS}::test_absent_cells_have_an_upper_limit"),
    Fault("cut nodes count nothing", "bounds.py", "a[pairs.kind == CUT] = up_a", "a[pairs.kind == CUT] = 0.0",
          f"{INTERVAL_LAWS}::test_the_variance_of_an_area_is_that_of_least_squares"),
    Fault("blocks of a tree share a stream", "visit.py", 'streams.open("noise", cut, block)',
          'streams.open("noise", cut, 0)', f"{TREE_LAW}::test_levels_and_blocks_do_not_share_noise"),
    Fault("the descent looks at true counts", "visit.py", "parents, totals = nodes[kept], x[kept]",
          "edges = [np.searchsorted(keys, (nodes[kept] + i) * self.order.stride(cut)) for i in (0, 1)]\n"
          "            kept = kept[edges[0] < edges[1]]\n            parents, totals = nodes[kept], x[kept]",
          f"{BAYES_LAWS}::test_a_release_follows_from_its_measurements"),
    Fault("the estimate sees true counts", "draw.py",
          "    del keys, values\n    out_keys, out_values = refined(run, visited, refine)",
          "    from dataclasses import replace\n    last = visited.levels[-1]\n    y = last.y.copy()\n"
          "    y[np.minimum(np.searchsorted(last.prefix, keys), y.size - 1)] = values\n"
          "    seen = replace(visited, levels=(*visited.levels[:-1], replace(last, y=y)))\n"
          "    out_keys, out_values = refined(run, seen, refine)",
          f"{BAYES_LAWS}::test_a_release_follows_from_its_measurements"),
    Fault("a prior made from the table", "draw.py", "    del keys, values\n    out_keys, out_values = refined(run",
          "    from dataclasses import replace\n    from kasuri.public import PublicTable\n"
          "    index = np.argsort(tree.cells(keys))\n    own = PublicTable(run.domain, tree.cells(keys)[index], "
          "values[index].astype(float), 'x')\n    run = replace(run, mechanism=replace(run.mechanism, prior=own))\n"
          "    out_keys, out_values = refined(run", f"{BAYES_LAWS}::test_a_release_follows_from_its_measurements"),
    Fault("the pilot is not charged", "shares.py", "scale = (1 - PILOT_SHARE) / sum(others.values())",
          "scale = 1 / sum(others.values())", f"{BAYES_LAWS}::test_the_published_scales_spend_epsilon_once"),
    Fault("the pilot has less noise than it says", "draw.py", "run.scale / share, keys, values, streams)",
          "run.scale / share / 2, keys, values, streams)",
          f"{TREE_LAW}::test_a_pilot_and_the_levels_it_chose_have_their_own_noise"),
    Fault("people on nodes without leaves", "refine.py",
          "closed.insert(0, leaves[children[1:]] == leaves[children[:-1]])",
          "closed.insert(0, children[1:] == children[:-1])",
          "tests/laws/test_visit.py::test_nobody_is_lost_below_a_pilot"),
    Fault("the total of posterior means", "bayes.py", "whole_total(total), z", "whole_total(z[0]), z",
          f"{TREE_LAW}::test_posterior_means_do_not_move_the_total"),
    Fault("candidates share their noise", "choose.py", 'own = Streams(streams.block_key("candidate", turn, 0), name)',
          "own = streams", f"{BAYES_LAWS}::test_no_stream_is_opened_twice"),
    Fault("what chooses holds the release's key", "draw.py",
          'choose(run, known, Streams(streams.block_key("simulation", 0, 0), "simulation"))',
          "choose(run, known, streams)", f"{BAYES_LAWS}::test_no_stream_is_opened_twice"),
    Fault("a preset spends more than epsilon", "shares.py", "rest = (1 - Fraction(cells)) / sum(weights.values())",
          "rest = Fraction(1) / sum(weights.values())", f"{BAYES_LAWS}::test_the_published_scales_spend_epsilon_once"),
    Fault("a block without records is not drawn on Spark", "spark/subtrees.py",
          "yield own.slice(low, high - low), root.slice(i, 1)",
          "yield from [(own.slice(low, high - low), root.slice(i, 1))] if low < high else []",
          f"{SPARK}::test_blocks_without_a_record_have_their_mass"),
    Fault("blocks share the stream of their level", "engine.py", "streams, cut, prefix, keys.size)",
          "streams, cut, 0, keys.size)", f"{LAW}::test_blocks_do_not_share_a_stream"),
    Fault("a task writes where the folder is another's", "spark/keep.py", "if not sees(folder, token):",
          "if not Path(folder).exists():", f"{SPARK}::test_a_task_writes_only_where_its_token_is_and_says_what"),
    Fault("two runs of a task write one file", "spark/files.py", 'folder / f".{secrets.token_hex(16)}"',
          'folder / f".{number}"',
          "tests/spark/test_spark.py::test_a_file_written_twice_is_the_same_and_half_a_file_is_none"),
    Fault("a block on Spark forgets its records", "spark/subtrees.py",
          "made = descent.below(prefix, S, keys, engine.prefix_sums(values), streams, record)",
          "made = descent.below(prefix, S, keys[:0], engine.prefix_sums(values[:0]), streams, record)",
          f"{SPARK}::test_a_cut_tree_is_the_release_of_one_machine"),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_planted_fault_is_caught(fault, tmp_path):
    assert_caught(fault, tmp_path)
