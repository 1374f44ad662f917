"""UCI Adult, k = 5 and 10: CPU time, classes and NCP of `specialize` and `mondrian`; greedy full-domain recoding.

    .venv/bin/python benchmarks/kanon_adult.py

ARX's figures, quoted for orientation and not run here: 0.02-0.1 s; 36 and 18 classes full-domain without
suppression, 65 and 39 by specialisation.
"""

import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from kanon_pycanon import adult  # noqa: E402
from reference import kanon as slow  # noqa: E402

from kasuri import _kernels, kanon  # noqa: E402
from kasuri.kanon.recoding import encode  # noqa: E402


def best_time(make, times: int = 7):
    out, found = None, []
    for _ in range(times):
        start = time.process_time()
        out = make()
        found.append(time.process_time() - start)
    return min(found), out


def main() -> None:
    _kernels.warm_up()
    rows = adult()
    spec = kanon.Recoding.load(ROOT / "src/kasuri/reproduce/adult/adult.toml")
    trees = [slow.Tree(tree.labels, tree.parent.tolist()) for tree in spec.attributes]
    coded = encode(rows, spec)
    leaves = [t.leaf_nodes[leaf].tolist() for t, leaf in zip(spec.attributes, coded.leaves, strict=True)]
    tuples = Counter(zip(*leaves, strict=True))
    for k in (5, 10):
        ncp, classes = slow.full_domain(tuples, trees, k)
        print(f"k = {k:2}  full-domain, greedy: {len(classes)} classes, NCP {float(ncp) / len(rows) / 4:.4f}")
        for name, make in (
            ("specialize", lambda: kanon.specialize(rows, spec, k=k)),  # noqa: B023
            ("specialize, 1 % suppressed", lambda: kanon.specialize(rows, spec, k=k, suppression="0.01")),  # noqa: B023
            ("mondrian", lambda: kanon.mondrian(rows, spec, k=k)),  # noqa: B023
        ):
            seconds, out = best_time(make)
            table = out.table().to_pandas()
            count = int(table.groupby(list(table), observed=True).size().min())
            print(
                f"        {name:27} {seconds * 1e3:6.1f} ms CPU  {out.measures.classes:4} classes  k = {count:3} "
                f"(counted by pandas)  NCP {out.ncp_share:.4f}"
            )
        seconds, _ = best_time(lambda: kanon.audit(rows, spec, k=k, sampling_rate=0.2))  # noqa: B023
        print(f"        audit at rate 0.2           {seconds * 1e3:6.1f} ms CPU")


if __name__ == "__main__":
    main()
