"""The help and the refusals of studies and benchmarks need no TensorFlow, which takes seconds to load."""

import subprocess
import sys

# Importing TensorFlow and Matplotlib fails.
_CODE = """
import sys
sys.modules['tensorflow'] = sys.modules['matplotlib'] = None
from inception_v3_tpu.commands import run
for name in sys.argv[1:]:
    for argument, code in (('--help', 0), ('--no_such_flag=1', 2)):
        try:
            run(name, [argument])
        except SystemExit as end:
            assert end.code == code, (name, argument)
        else:
            raise AssertionError(name)
"""


def test_help__needs_no_tensorflow() -> None:
    studies = ['batch-norm', 'streaming', 'revnet-memory']
    benchmarks = ['benchmark-input', 'benchmark-peers', 'benchmark-steps', 'benchmark-train', 'balance']
    done = subprocess.run([sys.executable, '-c', _CODE, *studies, *benchmarks], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '--train_batch_size=1024' in done.stdout and '--latencies' in done.stdout
