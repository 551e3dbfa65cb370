"""Runs a model's file, the second argument, where Gaudi's packages are stood in for as in a worker."""

import runpy
import sys

from trireme.backends.python.compat.accelerators import gaudi_finder

gaudi_finder.install()
runpy.run_path(sys.argv[2])
