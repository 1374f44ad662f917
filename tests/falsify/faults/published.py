"""Faults of estimates, limits and the words about them."""

from planted import Fault

INTERVAL_LAWS = "tests/laws/test_interval_laws.py"
BIAS_WORDS = "tests/contract/test_bias_words.py"
INTERVALS = "tests/contract/test_intervals.py"
COVERAGE = "tests/distributions/test_coverage.py"

QUESTIONS = "tests/contract/test_questions.py"

FAULTS = [
    Fault("steps of noise are passed over", "kasuri.published.intervals:finish", "    if steps:", "    if False:",
          f"{INTERVALS}::test_limits_of_noise_that_goes_in_steps"),
    Fault("only counts go in steps", "kasuri.published.intervals:stepped", "(TreeBars, CellBars, FullBars)", "CellBars",
          f"{INTERVALS}::test_limits_of_differences_that_go_in_steps"),
    Fault("a quantile by the limits of what is below alone", "kasuri.published.questions:quantiles",
          "most = (1 - q) * high[0] - q * low[1]", "most = (1 - q) * low[0] - q * low[1]",
          f"{QUESTIONS}::test_whatever_counts_the_intervals_allow_their_quantile_is_in_the_range"),
    Fault("a quantile one index too low", "kasuri.published.questions:quantiles",
          "possible[1:] &= least - slack < 0", "possible[:-1] &= least - slack < 0",
          f"{QUESTIONS}::test_answers_of_a_table_almost_without_noise", short=True),
    Fault("ranks by the released counts", "kasuri.published.questions:_ranked",
          'np.searchsorted(np.sort(low), high, side="right")', 'np.searchsorted(np.sort(low), values, side="right")',
          f"{QUESTIONS}::test_ranks_are_what_pairs_of_intervals_say"),
    Fault("parts that are not cut apart", "kasuri.published.questions:_part",
          "np.divide(low, low + high_rest)", "np.divide(low, low + low_rest)",
          f"{QUESTIONS}::test_answers_hold_with_noise"),
    Fault("a single noise taken as a normal one", "kasuri.published.bars:LinearBars._around",
          "one = max(s * math.log(", "one = min(s * math.log(",
          f"{INTERVAL_LAWS}::test_the_variance_of_linear_recipes_is_that_of_the_normal_equations"),
    Fault("device-hours called devices", "kasuri.words.japanese:counted", "    if max_cells > 1:\n",
          "    if max_cells > 99:\n", f"{BIAS_WORDS}::test_a_total_says_what_it_counts"),
    Fault("variance halved", "kasuri.published.estimate:counts", "max(law(scale).variance,",
          "max(law(scale).variance / 2,",
          f"{INTERVAL_LAWS}::test_estimates_and_variances_are_those_of_least_squares"),
    Fault("a level's scale ignored", "kasuri.published.estimate:counts",
          "max(measured.scale[cuts[at]], LEAST_SCALE)", "max(measured.scale[cuts[-1]], LEAST_SCALE)",
          f"{INTERVAL_LAWS}::test_estimates_and_variances_are_those_of_least_squares"),
    Fault("not stretched to the released value", "kasuri.published.intervals:finish",
          "return np.minimum(np.maximum(low, 0.0), values), np.maximum(np.maximum(high, 0.0), values)",
          "return np.maximum(low, 0.0), np.maximum(high, 0.0)",
          f"{INTERVALS}::test_the_released_value_is_inside_or_there_is_a_reason"),
    Fault("no upper limit for absent cells", "kasuri.published.bounds:of_areas",
          "upper = np.where(shut_in, around.cap, np.maximum(", "upper = np.where(shut_in, 0.0, np.maximum(",
          f"{INTERVALS}::test_absent_cells_have_an_upper_limit"),
    Fault("limits cut by the least of all around", "kasuri.published.bounds:of_cells",
          "upper[here] = np.maximum(np.minimum(above(own.x[node], half), seen[at].second[node]), seen[at].high[node])",
          "upper[here] = of_cells_cut(tree, keys[here], level)[1]", f"{COVERAGE}::test_isolated_places_are_covered"),
    Fault("every window at the whole error", "kasuri.published.around:Window.half",
          "factor(level, share * part)", "factor(level, share)",
          f"{INTERVAL_LAWS}::test_windows_are_the_best_estimates_of_one_count_along_a_path"),
    Fault("a child counted twice in its window", "kasuri._kernels.intervals:pool_down",
          "(x[j] - share * above_x[i]) / v[j])", "x[j] / v[j])",
          f"{INTERVAL_LAWS}::test_windows_are_the_best_estimates_of_one_count_along_a_path"),
    Fault("odds as if nobody else were in the node", "kasuri._kernels.intervals:weigh_down", "if held <= t:",
          "if held >= 0:", f"{INTERVAL_LAWS}::test_odds_are_added_up_along_a_path"),
    Fault("sizes given up at half the odds", "kasuri.published.around:weighed",
          "math.log((1 - level) / parts) * _LEAST", "math.log((1 - level) / parts) * _LEAST / 2",
          f"{INTERVAL_LAWS}::test_a_lone_count_is_seldom_above_the_limit_where_it_was_lost"),
    Fault("padding shared by cells", "kasuri.published.bounds:pairs",
          "shares = search.halves if tree.halves else search.share", "shares = search.share",
          f"{COVERAGE}::test_margins_over_a_padded_axis_are_covered"),
    Fault("what cut nodes are expected to hold is believed", "kasuri.published.bounds:of_areas",
          "most = 1 + _DOUBT[tree.halves]", "most = 1", f"{COVERAGE}::test_rows_that_hold_everybody_are_covered"),
    Fault("cut nodes count nothing", "kasuri.published.bounds:sums", "a[pairs.kind == CUT] = up_a",
          "a[pairs.kind == CUT] = 0.0", f"{INTERVAL_LAWS}::test_the_variance_of_an_area_is_that_of_least_squares"),
]  # fmt: skip
