"""The packages of the wheel: one folder in site-packages, the program, which holds its other packages.

Everything else is in pyproject.toml.
"""

from setuptools import find_packages, setup

PROGRAM = 'inception_v3_tpu'
PARTS = find_packages(exclude=[PROGRAM, 'docs', 'docs.*', 'examples', 'tests', 'tests.*'])
setup(
    # Its place in pyproject.toml has two forms: Python 3.7's setuptools lacks one, and today's warns of the other.
    license='Apache-2.0',
    packages=[PROGRAM, *(f'{PROGRAM}.{name}' for name in PARTS)],
    package_dir={f'{PROGRAM}.{name}': name for name in PARTS if '.' not in name},
)
