"""Faults of the noise: keystreams and samplers."""

from planted import Fault

RELEASE_LAW = "tests/distributions/test_release_law.py"
NOISE = "tests/distributions/test_noise.py"
SAMPLERS = "tests/distributions/test_samplers.py"

FAULTS = [
    Fault("blocks share a stream", "kasuri.noise.rng:Streams.block_key", '|{level}|{block}"', '|{level}"',
          f"{RELEASE_LAW}::test_blocks_do_not_share_a_stream", short=True),
    Fault("the digits of a wide scale share bits", "kasuri.noise.samplers:WideSampler._pairs",
          "(further >> np.uint64(32 * j))", "(further >> np.uint64(0))",
          f"{NOISE}::test_the_wide_form_has_the_law_of_every_integer"),
    Fault("no law of its own where the high part is 0", "kasuri.noise.samplers:WideSampler._pairs",
          "for i in none.tolist():", "for i in none[:0].tolist():",
          f"{NOISE}::test_the_wide_form_has_the_law_of_every_integer"),
    Fault("pairs of words share their further bits", "kasuri.noise.samplers:WideSampler._pairs",
          "partial(stream.tie, first + 2 * i))\n        np.abs", "partial(stream.tie, first + i))\n        np.abs",
          f"{NOISE}::test_no_further_bits_of_a_wide_draw_are_used_twice"),
    Fault("the digits of a wide scale share further bits", "kasuri.noise.samplers:WideSampler._pairs",
          "first + 2 * i + 1, 2 * turn + j)", "first + 2 * i + 1, turn)",
          f"{NOISE}::test_no_further_bits_of_a_wide_draw_are_used_twice"),
    Fault("a tie counts as below", "kasuri.noise.samplers:_decide", "if (u + 1) << 16 <= low:", "if u << 16 < high:",
          f"{SAMPLERS}::test_a_tied_word_changes_its_outcome_where_the_exact_law_says", short=True),
    Fault("a second tie sees the first bits again", "kasuri.noise.samplers:_decide",
          "(u << 64) | more(turn), bits + 64, turn + 1", "(u << 64) | more(0), bits + 64, turn + 1",
          f"{SAMPLERS}::test_a_tied_word_changes_its_outcome_where_the_exact_law_says"),
    Fault("the digits of a tie swapped", "kasuri.noise.samplers:Sampler.decide",
          "low, _WORD, lambda turn: more(2 * turn + 1))", "low, _WORD, lambda turn: more(2 * turn + 2))",
          f"{SAMPLERS}::test_both_digits_are_settled_exactly"),
    Fault("a tie settled by another word's bits", "kasuri.noise.samplers:Sampler._some",
          "partial(stream.tie, first + i)", "partial(stream.tie, i)",
          f"{SAMPLERS}::test_every_tie_and_no_other_word_asks_for_more_bits"),
    Fault("ties decided by the table", "kasuri._kernels.noise:_look_up", "np.uint64(u < threshold), u == threshold",
          "np.uint64(u < threshold), u < threshold and False",
          f"{SAMPLERS}::test_every_tie_and_no_other_word_asks_for_more_bits"),
    Fault("the scale smaller by half a percent", "kasuri.noise.samplers:_tailed",
          "_powers(exp_minus(1 / scale, w), count, w)",
          "_powers(exp_minus(201 / (200 * scale), w), count, w)",
          f"{SAMPLERS}::test_laplace_samples_have_their_law_to_the_tail"),
]  # fmt: skip
