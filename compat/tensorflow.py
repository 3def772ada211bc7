"""Differences between TensorFlow 1.15, the reference, 2.15, the last version that has Estimator, and 2.21.

Every module takes TensorFlow from here: `tf` is the interface of version 1, which all versions have; `tf2`, the
interface of version 2, is for summaries with descriptions and for the class of all variables. The functions below hide
differences that concern data sets; `names` hides the others, and `tensorflow_standins` has modules that 2.21 lacks.
"""

import logging
import os
import signal
import sys
import tempfile
import time
from typing import Any, Callable, NoReturn

# The settings come before TensorFlow is loaded.
from compat import log, native_messages, settings

_XLA_VARIABLES = ('TF_XLA_FLAGS', 'XLA_FLAGS')

_level = logging.getLogger('tensorflow').level
with native_messages.captured():  # 2.21 announces itself on standard error.
    import tensorflow.compat.v1 as tf
    import tensorflow.compat.v2 as tf2  # noqa: F401
# 2.15 executes eagerly by default, and its graphs have other variables, control flow and shapes.
tf.disable_v2_behavior()
log.settle_tensorflow(_level)
if sys.modules.get('boto3', sys) is None:
    # Other modules may load boto3 from now on.
    del sys.modules['boto3']

IS_REFERENCE = tf.__version__.startswith('1.')
# Seconds after which a process that tries XLA's flags is killed.
_FLAGS_TRIED = 30.0


def check_xla_flags() -> None:
    """Raises CommandError if XLA refuses the environment variable TF_XLA_FLAGS or XLA_FLAGS.

    XLA ends a process that reads an unknown flag, so a child process tries the user's flags first: a fork, which need
    not import TensorFlow again.
    """
    names = [name for name in _XLA_VARIABLES if os.environ.get(name, '') not in ('', settings.TF_XLA_FLAGS)]
    if not names:
        return
    from compat import errors, messages

    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if not child:
            _try_xla(said.fileno())
        end, done, status = time.monotonic() + _FLAGS_TRIED, 0, 0
        while not done and time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.01)
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        said.seek(0)
        lines = [line for line in said.read().decode(errors='replace').splitlines() if line.strip()]
    reason = next((line for line in lines if 'nknown flag' in line), lines[-1] if lines else '')
    if done and status:
        name = next((name for name in names if f' {name}:' in reason), names[0])
        raise errors.CommandError(
            f'{name}={messages.shown(os.environ[name])}: XLA cannot use this environment variable: '
            f'{messages.shown(reason.rpartition("] ")[2], 200)}. This program does not need it: unset it.'
        )


def _try_xla(said: int) -> NoReturn:
    """Makes XLA read its flags, and ends this process. Its messages go to a file."""
    try:
        os.dup2(said, 2)
        # Opens no GPU.
        os.environ['CUDA_VISIBLE_DEVICES'] = ''
        with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(device_count={'GPU': 0, 'TPU': 0})) as session:
            if not IS_REFERENCE:
                # Since 2.x, XLA reads XLA_FLAGS at its first compilation.
                session.run(tf.xla.experimental.compile(lambda x: x + 1.0, [tf.constant(1.0)]))
    finally:
        os._exit(0)


check_xla_flags()


def complete(version: str) -> None:
    """Adds Estimator to a TensorFlow without it; warns if the version is newer than any that was tried.

    Raises:
      CommandError: a package of Estimator is missing; the message has the command that installs it.
    """
    from compat import errors

    try:
        from compat import tensorflow_standins

        tensorflow_standins.add_estimator()
    except ImportError as error:
        raise errors.CommandError(str(error))
    newest = tensorflow_standins.NEWEST
    if [int(number) for number in version.split('.')[:2]] > [int(number) for number in newest.split('.')]:
        log.logger.warning('TensorFlow %s is newer than %s, the newest that this program was tried on', version, newest)


if not hasattr(tf, 'estimator'):
    complete(tf.__version__)

# Whether integers are converted to floats with vector instructions: 300 x 320 x 3 bytes in 40 µs instead of 409.
CASTS_IN_VECTORS = not IS_REFERENCE


def mapped_by_the_requesting_thread(dataset: tf.data.Dataset, function: Callable[..., Any]) -> tf.data.Dataset:
    """Returns `dataset.map(function)`, run by the requesting thread; `map` itself always uses the inter-op threads.

    2.15 has the class in another module, under a private name.
    """
    try:
        from tensorflow.python.data.ops.map_op import _MapDataset as MapDataset
    except ImportError:
        from tensorflow.python.data.ops.dataset_ops import MapDataset
    return MapDataset(dataset, function, use_inter_op_parallelism=False)


def either(condition: tf.Tensor, yes: Callable[..., Any], no: Callable[..., Any], *arguments: tf.Tensor) -> Any:
    """Returns the results of `yes` if a condition holds, else the results of `no`.

    `tf.cond` marks the operations of the other function as dead, one by one; this spends no time on them. `yes` and
    `no` are functions of the arguments alone, with results of the same structure, types and ranks.
    """
    signature = [tf.TensorSpec(each.shape, each.dtype) for each in arguments]
    branches = [tf.function(each, signature, autograph=False).get_concrete_function() for each in (yes, no)]
    # An unreferenced function dismantles its graph, which the checks of a run's graph read.
    tf.add_to_collection('branches', branches)
    outputs = branches[0].structured_outputs
    flat = tf.nest.flatten(outputs)
    results = tf.raw_ops.StatelessIf(
        cond=condition,
        input=arguments,
        Tout=[each.dtype for each in flat],
        then_branch=branches[0],
        else_branch=branches[1],
    )
    for result, each in zip(results, flat):
        result.set_shape([None] * each.shape.ndims)
    return tf.nest.pack_sequence_as(outputs, results)


def threads_of(options: tf.data.Options) -> Any:
    """Returns the options of a data set's threads, which 2.15 renamed; the former name warns at each use."""
    return options.threading if hasattr(options, 'threading') else options.experimental_threading


def switch_autotuning_off(options: tf.data.Options) -> None:
    """Switches off tf.data's autotuning for a data set that has nothing to tune.

    Even then, autotuning records the time of every element. In 2.15, its thread sleeps longer and longer, up to a
    minute, and the end of an iterator sometimes waits for it.
    """
    if hasattr(options, 'autotune'):
        options.autotune.enabled = False
    else:
        options.experimental_optimization.autotune = False
