"""Run the command line with `python -m perdure.surfaces.cli`."""

from perdure.surfaces.cli import main

main()
