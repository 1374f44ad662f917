"""Faults of the ledger and of what is left behind: charges, half-written files, leaks of the true table."""

from planted import Fault

LEDGER = "tests/contract/test_ledger.py"
LEDGER_FAULTS = "tests/falsify/test_ledger_faults.py"
STUDY = "tests/falsify/test_faults.py"
SIDE_DOORS = "tests/falsify/test_side_doors.py"
LOW_BITS = "tests/falsify/test_low_bits.py"

FAULTS = [
    Fault("a key is made before the charge", "kasuri.draw:charge", "    receipt = None\n",
          "    receipt, _ = None, source.release_key()\n",
          f"{LEDGER}::test_reserved_on_disk_before_the_key_is_made", short=True),
    Fault("no lock between processes", "kasuri.budget.ledger.files:lock",
          "fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass",
          f"{LEDGER_FAULTS}::test_nothing_is_overspent_or_lost",
          also=(("kasuri.budget.ledger.files:connect", '"BEGIN IMMEDIATE"', '"BEGIN"'),)),
    Fault("nothing goes to the journal", "kasuri.budget.ledger.files:append",
          "written += os.write(handle, data[written:])", "written += len(data)",
          f"{LEDGER_FAULTS}::test_nothing_is_overspent_or_lost"),
    Fault("a ledger behind its journal is believed", "kasuri.budget.ledger.book:Ledger._catch_up",
          "if torn or len(rows) != len(lines)", "if torn", f"{LEDGER_FAULTS}::test_nothing_is_overspent_or_lost"),
    Fault("old memory where a long text ends", "kasuri.store.duck:_without_old_memory", "_end_of_text(file, at, size)",
          "pass", "tests/contract/test_store.py::test_no_old_memory_where_a_long_text_ends"),
    Fault("saved and not committed", "kasuri.store.folder:save_tables", "if release.receipt is not None:",
          "if release.receipt is None:", f"{LEDGER_FAULTS}::test_nothing_is_overspent_or_lost"),
    Fault("damaged kernels are believed", "kasuri._kernels.cached:_Files._read",
          "if content[:_DIGEST] != self._digest(path, content[_DIGEST:]):", "if len(content) < _DIGEST:",
          f"{STUDY}::test_a_damaged_kernel_cache_is_not_believed", section="faults"),
    Fault("a job is charged before its folder is tried", "kasuri.job.running:rehearse",
          "    ready(target)  # writable, before anything is read or charged\n", "",
          f"{STUDY}::test_a_read_only_folder_costs_nothing", section="faults"),
    Fault("files written in place", "kasuri.files:whole", "            yield aside\n", "            yield target\n",
          f"{STUDY}::test_nothing_is_left_half_done", section="faults"),
    Fault("the recipe's words count the work done", "kasuri.draw:release",
          "MappingProxyType({**run.words(), **drawn.words})",
          'MappingProxyType({**run.words(), **drawn.words, "steps": int(counts.cells.size)})',
          f"{SIDE_DOORS}::test_one_person_more_changes_nothing_but_values", short=True, section="side doors"),
    Fault("a repr with the number of cells", "kasuri.table:Counts.__repr__", "shape={self.domain.shape}, unit=",
          "shape={self.domain.shape}, cells={self.cells.size}, unit=",
          f"{SIDE_DOORS}::test_the_library_says_nothing_of_one_person", section="side doors"),
    Fault("a log line with the number of cells counted", "kasuri.ingest.micro:count_records",
          "    return checked(cells, values, domain, unit, data, assumes=assumes)\n",
          "    import logging\n"
          "\n"
          '    logging.getLogger("kasuri").info("%d", len(cells))\n'
          "    return checked(cells, values, domain, unit, data, assumes=assumes)\n",
          f"{SIDE_DOORS}::test_one_person_more_changes_nothing_but_values", section="side doors"),
    Fault("float noise in a recipe of whole numbers", "kasuri.recipes.cells:geometric",
          '"docs/proofs/geometric.md", DiscreteLaplace)', '"docs/proofs/geometric.md", FloatLaplace)',
          f"{LOW_BITS}::test_recipes_show_the_same_last_bits", section="side doors"),
]  # fmt: skip
