"""Runs one list of commands with everything but the data held equal: keys, ids, the clock, and the released values.

    python twin_run.py commands.json    (in the folder to work in)

Each command is a list of words of `kasuri`, or a text of Python. What is released is drawn on the data as shipped, and
then drawn again, with the same bits, on one fixed table that takes its place: whatever still differs between the runs
of two inputs is a side door.
"""

import dataclasses
import datetime
import hashlib
import json
import logging
import os
import secrets
import sys
import traceback
import warnings
from collections import Counter
from pathlib import Path

import numpy as np


def hold_still() -> None:
    """Keys and names from counters, one for each line that asks; one moment for all."""
    turn: Counter[str] = Counter()

    def token_bytes(size=32):
        caller = sys._getframe(1)
        while caller.f_code.co_filename == __file__:
            caller = caller.f_back
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        turn[place] += 1
        return hashlib.blake2b(f"{place}|{turn[place]}".encode(), digest_size=64).digest()[: size or 32]

    secrets.token_bytes = token_bytes
    secrets.token_hex = lambda size=32: token_bytes(size).hex()
    secrets.randbits = lambda bits: int.from_bytes(token_bytes(64), "little") & ((1 << bits) - 1)

    from kasuri.budget.ledger import book

    class Noon(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime(2026, 1, 2, 12, tzinfo=tz)

    book.datetime = Noon


def publish_the_reference() -> None:
    """The one function of each model that makes what is released: it runs on the data, and the reference is given."""
    import kasuri.draw
    from kasuri import kanon
    from kasuri.local.randomizer import Randomizer
    from kasuri.shuffle.columns import Column

    draw, randomize, column = kasuri.draw.draw, Randomizer.randomize, Column.randomize
    sampled = kanon.sample_then_anonymize

    def drawn(run, counts, streams, threads):
        draw(run, counts, streams, threads)
        cells = np.flatnonzero(run.domain.possible_dense().ravel())[::3]
        return draw(run, dataclasses.replace(counts, cells=cells, values=cells % 5 + 1), streams, threads)

    def reported(self, values, *, source=None):
        randomize(self, values, source=source)
        return randomize(self, [self.labels[0]] * len(values), source=source)

    def columned(self, values, source):
        if not self.is_number:
            return column(self, values, source)  # by `reported`
        column(self, values, source)
        return column(self, np.full(len(values), float(self.numeric.low)), source)

    def anonymized(rows, spec, **more):
        sampled(rows, spec, **more)
        return sampled(rows.slice(0, 300), spec, **more)

    kasuri.draw.draw = drawn
    Randomizer.randomize = reported
    Column.randomize = columned
    kanon.sample_then_anonymize = anonymized


def say(text: str) -> None:
    for stream in (sys.stdout, sys.stderr):
        print(text, file=stream, flush=True)


def main() -> None:
    logging.basicConfig(level=logging.DEBUG, format="LOG %(name)s %(levelname)s %(message)s")
    for noisy in ("numba", "matplotlib"):  # what they say of compiling and fonts has nothing to do with the data
        logging.getLogger(noisy).setLevel(logging.WARNING)
    warnings.simplefilter("always")
    hold_still()
    from kasuri.cli import main as kasuri

    publish_the_reference()
    for command in json.loads(Path(sys.argv[1]).read_text()):
        say(f"$ {command}")
        try:
            if isinstance(command, str):
                exec(compile(command, "<command>", "exec"), {"__name__": "command"})
            else:
                sys.argv = ["kasuri", *command]
                kasuri()
            say("-> 0")
        except SystemExit as stop:
            say(f"-> {stop.code}")
        except BaseException:
            traceback.print_exc()
            say("-> raised")
    sys.stdout.flush()
    os._exit(0)  # no garbage of libraries at the end


if __name__ == "__main__":
    main()
