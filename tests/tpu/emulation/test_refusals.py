"""Tests that emulated cores refuse the same operations as a TPU's cores and hosts, and name the line of each."""

import inspect
import re
from typing import Any, Callable, Dict, Optional, Tuple

import numpy as np
import pytest

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.framework import function

from compat.errors import CommandError
from inception_v3.tpu import supported, topology
from inception_v3.tpu.emulation import EmulatedTPUEstimator

API = tf.estimator.tpu

Step = Callable[[tf.Tensor], Any]


def train(model_dir: Any, step: Step, input_fn: Any = None, optimizer: Any = tf.tpu.CrossShardOptimizer) -> None:
    """Trains one weight on two emulated cores; `step` is applied to the features."""

    def model_fn(features: tf.Tensor, labels: tf.Tensor, mode: str, params: Any) -> Any:
        weight = tf.get_variable('weight', initializer=0.0)
        loss = tf.reduce_mean(tf.cast(step(features), tf.float32) * weight)
        global_step = tf.train.get_global_step()
        train_op = optimizer(tf.train.GradientDescentOptimizer(1.0)).minimize(loss, global_step)
        return API.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)

    config = API.RunConfig(
        model_dir=str(model_dir),
        session_config=tf.ConfigProto(),
        tpu_config=API.TPUConfig(num_shards=2, per_host_input_for_training=API.InputPipelineConfig.PER_HOST_V2),
    )
    emulated = EmulatedTPUEstimator(
        topology.emulated('emulated:2'), config, model_fn=model_fn, use_tpu=True, train_batch_size=4
    )
    emulated.train(input_fn or numbers(), max_steps=1)


def numbers(
    dtype: tf.DType = tf.float32, through: Optional[Step] = None
) -> Callable[[Dict[str, Any]], tf.data.Dataset]:
    """An input_fn of the numbers 0 to 3, in a given type, mapped by a function."""

    def input_fn(params: Dict[str, Any]) -> tf.data.Dataset:
        dataset = tf.data.Dataset.from_tensor_slices(np.arange(4, dtype=np.float32))
        if through:
            dataset = dataset.map(through)
        convert = tf.as_string if dtype == tf.string else lambda x: tf.cast(x, dtype)
        return dataset.map(lambda x: (convert(x), x)).repeat().batch(params['batch_size'], drop_remainder=True)

    return input_fn


def printed(x: tf.Tensor) -> tf.Tensor:
    with tf.control_dependencies([tf.print('x', x)]):  # culprit
        return tf.identity(x)


def summary(x: tf.Tensor) -> tf.Tensor:
    tf.summary.scalar('x', x[0])  # culprit
    return x


def no_resource(x: tf.Tensor) -> tf.Tensor:
    variable = tf.get_variable('other', initializer=1.0, use_resource=False, trainable=False)
    with tf.control_dependencies([variable.assign_add(1.0)]):  # culprit
        return tf.identity(x)


REFUSED: Tuple[Tuple[str, Step], ...] = (
    ('PyFunc', lambda x: tf.reshape(tf.py_func(lambda y: y, [x], tf.float32), x.shape)),  # culprit
    ('EagerPyFunc', lambda x: tf.reshape(tf.py_function(tf.sin, [x], tf.float32), x.shape)),  # culprit
    ('AsString', lambda x: x + tf.cast(tf.strings.length(tf.as_string(x)), tf.float32)),  # culprit
    ('Placeholder', lambda x: x + tf.placeholder(tf.float32, [])),  # culprit
    # Inside a function and a branch.
    ('Print', lambda x: tf.function(lambda y: tf.Print(y, [y]))(x)),  # culprit
    ('Print', lambda x: tf.cond(x[0] > 0, lambda: tf.Print(x, [x]), lambda: x)),  # culprit
    ('PrintV2', printed),
    ('ScalarSummary', summary),
    ('AssignAdd', no_resource),
)


@pytest.mark.parametrize(('kind', 'step'), REFUSED)
def test_step__is_refused_with_operation_and_line(tmp_path: Any, kind: str, step: Step) -> None:
    lines, first = inspect.getsourcelines(step)
    (offset,) = [number for number, text in enumerate(lines) if text.endswith('# culprit\n')]
    with pytest.raises(CommandError, match="A TPU refuses the model function's step:") as refused:
        train(tmp_path, step)
    place = f'created at tests/tpu/emulation/test_refusals.py:{first + offset}: '
    assert re.search(rf'\({kind}\), {re.escape(place)}', str(refused.value)), refused.value


def test_functions__are_searched_once_each() -> None:
    @function.Defun(tf.float32)
    def old_style(x: tf.Tensor) -> tf.Tensor:
        return x

    through_python = tf.function(lambda: tf.reshape(tf.py_function(lambda: 1.0, [], tf.float32), []))
    calls = [(through_python() + old_style(tf.zeros([]))).op.inputs[0].op for _ in range(2)]
    assert len([*supported.python_flaws(tf.get_default_graph())]) == 1
    assert [flaw.type for flaw in supported.unsupported(calls)] == ['EagerPyFunc']


def test_unsupported__names_the_types_that_have_no_kernel() -> None:
    (flaw,) = supported.unsupported([tf.raw_ops.Empty(shape=[2], dtype=tf.string).op])
    assert flaw.problem == 'XLA has no kernel for int32, string, so a TPU core cannot run it'


@pytest.mark.parametrize(('number', 'last'), [(10, '9'), (11, 'and 1 more')])
def test_refuse__names_ten_flaws(number: int, last: str) -> None:
    flaws = [supported.Flaw(str(i), 'Kind', 'file.py:1', 'problem') for i in range(number)]
    with pytest.raises(CommandError) as refused:
        supported.refuse(flaws * 2, 'a part')
    title, *lines = str(refused.value).split('\n  ')
    assert title == 'A TPU refuses a part:' and len(lines) == number
    assert lines[-1] == (last if number > 10 else f'{last} (Kind), created at file.py:1: problem')


@pytest.mark.parametrize('dtype', [tf.uint16, tf.string], ids=str)
def test_infeed__refuses_types_that_a_tpu_does_not_take(tmp_path: Any, dtype: tf.DType) -> None:
    def to_float(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.to_number(x) if x.dtype == tf.string else x

    with pytest.raises(CommandError, match=f'a TPU takes no {dtype.name} in its infeed, only bfloat16, bool') as e:
        train(tmp_path, to_float, numbers(dtype))
    assert 'IteratorGetNext' in str(e.value) and 'test_refusals.py:' in str(e.value)


def test_input_pipeline__refuses_python(tmp_path: Any) -> None:
    with pytest.raises(
        CommandError, match=r"EagerPyFunc.*test_refusals.py:.* calls Python, which a TPU's hosts do not"
    ):
        train(tmp_path, tf.identity, numbers(through=lambda x: tf.reshape(tf.py_function(tf.sin, [x], tf.float32), [])))


@tf.custom_gradient
def twice(x: tf.Tensor) -> Any:
    return 2 * x, lambda gradient: 2 * gradient


@pytest.mark.parametrize('step', [tf.identity, twice])
def test_training__needs_cross_shard_optimizer(tmp_path: Any, step: Step) -> None:
    with pytest.raises(CommandError, match='CrossShardOptimizer must be used'):
        train(tmp_path, step, optimizer=lambda optimizer: optimizer)


def test_functions__may_have_arguments() -> None:
    captured = tf.ones([])
    call = tf.function(lambda x: x + captured)(tf.zeros([])).op
    assert [*supported.unsupported([call])] == []
    # This placeholder is not an argument.
    call = tf.function(lambda x: x + tf.placeholder(tf.float32, []))(tf.zeros([])).op
    assert [flaw.type for flaw in supported.unsupported([call])] == ['Placeholder']


@pytest.mark.parametrize('dtype', [tf.bfloat16, tf.int32], ids=str)
def test_step__trains_with_what_a_tpu_supports(tmp_path: Any, dtype: tf.DType) -> None:
    train(tmp_path, lambda x: twice(tf.cast(x, tf.float32)), numbers(dtype))
    # The mean of 2 * (0, 1, 2, 3) is 3, and the rate is 1.
    assert tf.train.load_variable(str(tmp_path), 'weight') == -3
