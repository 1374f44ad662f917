"""python -m kasuri"""

from kasuri.cli import main

main()
