"""The root of the project and its packages."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ('console', 'preprocessing', 'data', 'inception_v3', 'studies', 'benchmarks', 'examples', 'inception_v3_tpu')
