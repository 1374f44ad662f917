"""python -m kasuri"""

from kasuri.cli import process

process()
