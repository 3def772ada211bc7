"""Batch normalization across replicas: a published experiment made again on 8 emulated cores.

Prints its table beside the published figures, and what that leaves out: unequal replicas, groups of replicas, the
variance of the means, and the decay of one replica in eight. Writes all numbers as JSON, and a figure of them.
studies/README.md tells what they show.
"""

import argparse
import json
import os
import sys

import tensorflow as tf

from inception_v3.config import ConfigError
from inception_v3.model_dir import source
from inception_v3.model_dir.files import check_writable
from studies.batch_norm import report
from studies.batch_norm.experiments import PUBLISHED, Results, Settings, as_dict, measure

OUT = os.path.join('runs', 'studies', 'batch_norm')
JSON_FILE = 'batch_norm.json'
FIGURE_FILE = 'batch_norm.png'


def write(out: str, measured: Results) -> None:
    """Writes the figure, and the numbers with the published ones and the versions, into a folder."""
    content = {'published': as_dict(PUBLISHED), 'measured': as_dict(measured), 'versions': source.versions()}
    with tf.io.gfile.GFile(os.path.join(out, JSON_FILE), 'w') as file:
        file.write(json.dumps(content, indent=2, ensure_ascii=False) + '\n')
    with tf.io.gfile.GFile(os.path.join(out, FIGURE_FILE), 'wb') as file:
        file.write(report.figure(measured))


def main() -> None:
    """Runs the study."""
    parser = argparse.ArgumentParser(
        prog='python -m studies.batch_norm',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        '--out', default=OUT, help=f'folder for {JSON_FILE} and {FIGURE_FILE}, made if need be (default {OUT})'
    )
    arguments = parser.parse_args()
    if not arguments.out:
        parser.error('--out: must be the path of a folder')
    try:
        import matplotlib  # noqa: F401  else a user would learn that it is missing after all has been measured
    except ImportError:
        parser.error("the figure is drawn by matplotlib, which is not installed: pip install '.[studies]'")
    try:
        check_writable('out', arguments.out)
        print('measuring; this takes less than a minute', file=sys.stderr)
        measured = measure(Settings())
        print(report.text(measured))
        write(arguments.out, measured)
    except ConfigError as error:
        parser.error(str(error))
    except tf.errors.OpError as error:
        parser.exit(1, f'--out={arguments.out}: cannot be written to: {error.message}\n')
    except KeyboardInterrupt:
        parser.exit(130, 'interrupted; nothing was written\n')
    print(f'\nwritten: {JSON_FILE} and {FIGURE_FILE} in {arguments.out}')


if __name__ == '__main__':
    main()
