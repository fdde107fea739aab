"""Prints what an installed package requires here, one line each, but for some names: requirements_of.py PACKAGE [WITHOUT...]"""

import importlib.metadata
import sys

from pip._vendor.packaging.requirements import Requirement

for text in importlib.metadata.requires(sys.argv[1]) or []:
    r = Requirement(text)
    if r.name not in sys.argv[2:] and (r.marker is None or r.marker.evaluate({"extra": ""})):
        r.marker = None
        print(r)
