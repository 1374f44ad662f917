"""python -m kasuri.cli"""

from kasuri.cli import main

main()
