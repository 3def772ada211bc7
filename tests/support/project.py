"""The root of the project and its packages."""

import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ('compat', 'console', 'preprocessing', 'data', 'inception_v3', 'tools', 'examples', 'inception_v3_tpu')
