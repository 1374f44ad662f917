"""Runs the tests of side doors, faults and the supply chain, the long ones too, and records what they tried and found.

.venv/bin/python tests/falsify/record_doors.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from assurance import ROOT, record

COMMAND = "python tests/falsify/record_doors.py"
FILES = ("test_low_bits", "test_side_doors", "test_ledger_faults", "test_faults", "test_supply_chain")
TEXT = {
    "side doors": "Two inputs, the same bits of randomness, the same released values: what else differs? And the last "
    "bits of what is released.",
    "faults": "What is left behind: nothing half-written, nothing released without a charge, no entry lost.",
    "supply chain": "What kasuri is made of, and whom it speaks to.",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.xml"
        paths = [f"tests/falsify/{name}.py" for name in FILES]
        words = [sys.executable, "-m", "pytest", "-q", "-n", "0", *sys.argv[1:], f"--junitxml={log}", *paths]
        code = subprocess.call(words, cwd=ROOT)
        cases = ElementTree.parse(log).getroot().iter("testcase")
        tables: dict[str, list[list[str]]] = {name: [] for name in TEXT}
        for case in cases:
            said = {item.get("name"): item.get("value") for item in case.iter("property")}
            failed = case.find("failure") is not None or case.find("error") is not None
            if "section" in said or failed:
                name = said.get("name", case.get("name"))
                row = [name, said.get("tried", ""), "FAILED" if failed else said["found"], f"`{case.get('name')}`"]
                tables[said.get("section", "faults")].append([cell.replace("|", "/") for cell in row])
        for section, rows in tables.items():
            record(section, COMMAND, TEXT[section], ["what", "tried", "found", "test"], rows)
    sys.exit(code)


if __name__ == "__main__":
    main()
