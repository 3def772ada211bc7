"""Workers as processes of this machine, with a small network, that may signal themselves after a given step."""

import hashlib
import multiprocessing
import os
import pathlib
import sys
from typing import Any, Dict, List, Optional, Sequence
from unittest import mock

from compat import tf  # isort: skip  Before TensorFlow is loaded.
from tensorflow.python.training import checkpoint_management

from inception_v3 import main, replicas
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS
from inception_v3.run.hooks.watchers import StepHook
from tests.support.processes import wait_for
from tests.support.runs import ONE_LAYER

# Starts processes by forking a process that has loaded TensorFlow but has not used it.
FORKING = multiprocessing.get_context('forkserver')
FORKING.set_forkserver_preload(['tests.support.worker_program'])
# Steps of a whole run, and between its evaluations.
STEPS, PER_EVAL = 12, 6
LIMIT = 300.0


def network(
    images: tf.Tensor,
    num_classes: int,
    is_training: bool,
    conv: layers.Conv,
    norm: layers.Norm,
    dropout: layers.Dropout,
    **unused: Any,
) -> Any:
    """A network of one layer and the logits, with dropout, which differs between replicas.

    In float16, the second replica's gradients are not finite in step 3.
    """
    with tf.variable_scope('Layer'):
        net = tf.nn.relu(norm(conv(images, 16, (3, 3), 2, 'VALID')))
    with tf.variable_scope('Logits'):
        net = dropout(tf.reduce_mean(net, [1, 2], keepdims=True), 0.8, is_training)
        net = layers.add_bias(conv(net, num_classes, (1, 1)))
        if is_training and net.dtype == tf.float16:
            overflows = tf.equal(tf.train.get_global_step(), 2) & tf.equal(replicas.number(), 1)
            # The gradient of a root is infinite at 0.
            added = tf.sqrt(tf.where(overflows, 0.0, 1.0) * tf.reduce_sum(tf.cast(net, tf.float32) ** 2))
            net += tf.cast(added - tf.stop_gradient(added), net.dtype)
    return tf.squeeze(net, [1, 2]), None


def print_digest(session: tf.Session) -> None:
    """Prints a digest of the trainable variables on all replicas of this worker.

    Moving statistics differ between replicas, and the first one's are saved.
    """
    variables = sorted(tf.trainable_variables(), key=lambda variable: variable.op.name)
    values = session.run([replicas.copies(variable) for variable in variables])
    content = b''.join(value.tobytes() for copies in values for value in copies)
    print(f'weights {hashlib.sha256(content).hexdigest()}', flush=True)


def run(
    log: str, arguments: Sequence[str], environment: Dict[str, str], step: int, signal: int, sees_list: bool
) -> None:
    """Runs the program, and prints a digest of its weights before the first step of a cycle and after each step.

    Sends this process the signal after the step, counted from 1, if it is not 0. Sessions find no list of checkpoints
    unless `sees_list`, as on a network file system that shows new files late.
    """
    with open(log, 'a') as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    os.environ.update(environment)
    begun, after_run, done = StepHook.after_create_session, StepHook.after_run, [0]

    def shown(hook: Any, session: tf.Session, coord: Any) -> None:
        begun(hook, session, coord)
        print_digest(session)

    def signalled(hook: Any, context: Any, values: Any) -> None:
        print_digest(context.session)
        after_run(hook, context, values)
        done[0] += 1
        if done[0] == step:
            os.kill(os.getpid(), signal)

    small = ONE_LAYER._replace(build=network)
    hooks = mock.patch.multiple(StepHook, after_create_session=shown, after_run=signalled)
    lists = checkpoint_management.get_checkpoint_state if sees_list else lambda *unused: None
    seen = mock.patch.object(checkpoint_management, 'get_checkpoint_state', lists)
    with mock.patch.dict(NETWORKS, inception_v3=small), hooks, seen:
        sys.exit(main.main(['main', *arguments]))


class Program:
    """A run in a folder: of one process, or of as many as there are addresses."""

    def __init__(self, folder: pathlib.Path, data_dir: str, addresses: Sequence[str] = (), **flags: Any):
        folder.mkdir(exist_ok=True)
        self.folder, self.addresses = folder, addresses
        self.model_dir = str(folder / 'model')
        values = {
            'preset': 'digits',
            'data_dir': data_dir,
            'model_dir': self.model_dir,
            'export_dir': str(folder / 'export'),
            'accelerator': 'cpu',
            'seed': 1,
            'intra_op_threads': 1,
            'train_steps': STEPS,
            'train_steps_per_eval': PER_EVAL,
            'train_batch_size': 12,
            'eval_batch_size': 60,
            'worker_timeout': 30,
            **flags,
        }
        if addresses:
            values['worker_hosts'] = ','.join(addresses)
        self._flags: Dict[str, Any] = values
        self._processes: List[Any] = []

    def start(
        self,
        number: int = 0,
        step: int = 0,
        signal: int = 0,
        tf_config: Optional[str] = None,
        sees_list: bool = True,
        **flags: Any,
    ) -> Any:
        """Starts a worker of this number, or the only process; TF_CONFIG may take the place of flags."""
        values, environment = {**self._flags, **flags}, {}
        if tf_config:
            del values['worker_hosts']
            environment = {'TF_CONFIG': tf_config}
        elif self.addresses:
            values['task_index'] = number
        arguments = [f'--{name}={value}' for name, value in values.items()]
        process = FORKING.Process(target=run, args=(self._log(number), arguments, environment, step, signal, sees_list))
        process.start()
        self._processes.append(process)
        return process

    def start_all(self, worker: int = -1, step: int = 0, signal: int = 0) -> List[Any]:
        """Starts all workers; one of them signals itself."""
        numbers = range(len(self.addresses))
        return [self.start(number, step if number == worker else 0, signal) for number in numbers]

    def _log(self, number: int) -> str:
        return str(self.folder / f'log-{number}.txt')

    def log(self, number: int = 0) -> str:
        """Everything that a worker has printed."""
        path = pathlib.Path(self._log(number))
        return path.read_text() if path.exists() else ''

    def clear_logs(self) -> None:
        """Empties the logs of all workers."""
        for path in self.folder.glob('log-*.txt'):
            path.write_text('')

    def ends(self, *processes: Any) -> List[int]:
        """Waits for processes; returns their exit codes."""
        for process in processes:
            process.join(LIMIT)
            assert not process.is_alive(), [self.log(number) for number in range(len(self.addresses))]
        return [process.exitcode for process in processes]

    def says(self, number: int, text: str) -> None:
        """Waits until a worker has printed a text."""
        try:
            wait_for(lambda: text in self.log(number), LIMIT)
        except AssertionError as error:
            raise AssertionError(f'{error}: {text}', [self.log(each) for each in range(len(self.addresses))])

    def kill(self) -> None:
        """Kills the processes that are left."""
        for process in self._processes:
            process.kill()
            process.join()
