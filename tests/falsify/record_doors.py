"""Runs the tests of side doors, faults and the supply chain, and records what they tried and found.

python tests/falsify/record_doors.py [--full]    # some minutes
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from assurance import ROOT, record

FILES = ("test_low_bits", "test_side_doors", "test_ledger_faults", "test_faults", "test_supply_chain",
         "test_planted_faults")  # fmt: skip
TEXT = {
    "side doors": "Two inputs, the same bits of randomness, the same released values: what else differs? And the last "
    "bits of what is released.",
    "faults": "What is left behind: nothing half-written, nothing released without a charge, no entry lost.",
    "supply chain": "What kasuri is made of, and whom it speaks to.",
}


def main() -> None:
    command = " ".join(["python tests/falsify/record_doors.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.xml"
        paths = [f"tests/falsify/{name}.py" for name in FILES]
        marks = [] if "--full" in sys.argv else ["-m", "not full"]
        words = [sys.executable, "-m", "pytest", "-q", "-n", "0", *marks, "-o", "junit_family=xunit1"]
        code = subprocess.call([*words, f"--junitxml={log}", *paths], cwd=ROOT)
        tables: dict[str, list[list[str]]] = {name: [] for name in TEXT}
        for case in ElementTree.parse(log).getroot().iter("testcase"):
            said = {item.get("name"): item.get("value") for item in case.iter("property")}
            failed = case.find("failure") is not None or case.find("error") is not None
            if "section" in said or failed:
                name = said.get("name", case.get("name"))
                test = case.get("name").partition("[")[0]
                row = [name, said.get("tried", ""), "FAILED" if failed else said["found"], f"`{test}`"]
                tables[said.get("section", "faults")].append([cell.replace("|", "/") for cell in row])
    for section, rows in tables.items():
        record(section, command, TEXT[section], ["what", "tried", "found", "test"], rows)
    sys.exit(code)


if __name__ == "__main__":
    main()
