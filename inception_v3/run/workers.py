"""The workers of a run on several machines: checks that they agree, and ends all if one ends.

Only the first worker writes: it locks model_dir, saves, records, keeps the best checkpoint and exports. The others
build the same graphs, take part in every step and evaluation, and follow its decisions, which depend on model_dir.
"""

import contextlib
import hashlib
import os
import secrets
import signal
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Tuple

from compat import tf
from compat.errors import RETRY, InterruptedByUserError, RetryableError, TerminatedError
from compat.messages import shown
from data import remote
from data.dataset_info import DIGITS_SHOWN, DatasetInfo
from data.files import write_whole
from inception_v3 import __version__, class_weights
from inception_v3.config import Config
from inception_v3.data_set import samples_of
from inception_v3.machines import cluster
from inception_v3.model_dir import data_files, digest_of_index, latest_step, newest_checkpoint
from inception_v3.run.failures import what_is_kept
from inception_v3.run.hooks.stopping import Termination

if TYPE_CHECKING:
    from inception_v3.machines.channel import Channel, Ending

# Flags that may differ. Only the first worker reads `init_from`; the numbers of class weights are compared.
_OF_MACHINE = cluster.OF_MACHINE | {'init_from', 'class_weights'}
# Seconds until a file that another machine has written must be visible, and between checks.
_VISIBLE_WITHIN, _LOOK_EVERY = 5.0, 0.2
# Paths are shown whole: two paths may differ in any character.
_LONG = 4096
# TensorFlow's errors in a step if another worker is gone.
_GONE = (
    *(tf.errors.UnavailableError, tf.errors.AbortedError, tf.errors.CancelledError, tf.errors.InternalError),
    *(tf.errors.DeadlineExceededError, tf.errors.UnknownError),
)
# Signals, as bits of a step.
_BITS: Dict[int, int] = {signal.SIGTERM: 1, signal.SIGINT: 2}


class Workers:
    """This process as one of the workers of a run, or the only one."""

    def __init__(self, config: Config, termination: Termination, opened: 'Optional[Channel]' = None):
        self._config = config
        self._termination = termination
        self._model_dir = str(config.model_dir)
        self._addresses = cluster.addresses_in(config.worker_hosts)
        self._number = int(config.task_index or 0)
        self._channel, self._is_opened = opened, opened is not None
        if self._addresses:
            # Runs on one machine do not need it.
            from inception_v3.machines import channel

            place = cluster.Place(self._addresses, self._number, config.worker_timeout)
            joined = self._channel = opened or channel.of(place, self._ended)
            termination.tell = lambda error: joined.leave(error.exit_code, str(error), at_once=True)
        # Whether all workers end after a signal, each with its own message.
        self._end_together = False

    @contextlib.contextmanager
    def joined(self, data_set: Optional[DatasetInfo]) -> Iterator[None]:
        """Waits for all workers, checks that they agree on settings and data set, and tells them how this one ends.

        Raises:
          RetryableError: a port is in use.
          CommandError: workers differ, or another worker has ended with an error.
        """
        joined = self._channel
        if joined is None:
            yield
            return
        from inception_v3.machines import channel

        # Until the run begins, this thread waits, and raises the error of another worker.
        joined.on_end = lambda ending: None
        try:
            channel.check_port_is_free(self._addresses, self._number)
            facts = self._facts(data_set)
            if isinstance(joined, channel.First):
                with self._visible_file() as (name, content):
                    joined.gather(name, lambda answers: self._problems(facts, content, answers))
            elif isinstance(joined, channel.Later):
                own = {'facts': facts, 'model_dir': self._model_dir}
                joined.join(lambda name: {**own, 'seen': self._seen(name)})
            joined.on_end = self._ended
            joined.check_ending()
            yield
        except _GONE as error:
            # The connection between the workers shows which one is gone, and ends this process.
            joined.wait_for_ending(self._config.worker_timeout)
            joined.leave(RETRY, str(error.message))
            raise
        except BaseException as error:
            # After a signal, the others end by themselves. They must be told other errors, such as a failed save.
            if self._end_together and isinstance(error, (TerminatedError, InterruptedByUserError)):
                joined.leave()
            # Before the run begins, telling the others may take long. The code that opened the connection does it,
            # where a signal does not replace the error.
            if joined.has_begun or not self._is_opened:
                joined.fail(error)
            raise
        joined.leave()
        if isinstance(joined, channel.Later):
            joined.wait_for_first()

    def _ended(self, ending: 'Ending') -> None:
        self._termination.end_process(ending.error(what_is_kept(self._model_dir) if ending.code == RETRY else ''))

    def share(self, make: Callable[[], Any]) -> Any:
        """The JSON value that `make` returns; only the first worker calls `make`."""
        return self._channel.share(make) if self._channel else make()

    def agreed(self, request: Optional[int]) -> Optional[int]:
        """The signal on which all workers end after this step, if any has received one; `request` is this worker's."""
        if not self._channel:
            return request
        bits = self._channel.union(_BITS.get(request or 0, 0))
        agreed = next((number for number, bit in _BITS.items() if bits & bit), None)
        self._end_together = bool(agreed)
        return agreed

    def latest_step(self) -> int:
        """The step of the newest checkpoint. With several workers, the first one finds it, because it saves."""
        return int(self.share(lambda: latest_step(self._model_dir)))

    def newest_checkpoint(self) -> str:
        """The path of the newest checkpoint; with several workers, the first worker's, once this one sees its files.

        Raises:
          CheckpointError: there is no checkpoint.
          RetryableError: this worker does not see the checkpoint within `--worker_timeout`.
        """
        if not self._channel:
            return newest_checkpoint(self._model_dir)

        def own() -> List[str]:
            checkpoint, prefix = newest_checkpoint(self._model_dir), os.path.join(self._model_dir, '')
            # A listed checkpoint may be in another folder.
            name = checkpoint[len(prefix) :] if checkpoint.startswith(prefix) else checkpoint
            return [name, digest_of_index(checkpoint)]

        return self._visible_checkpoint(*self.share(own))

    def _visible_checkpoint(self, name: str, digest: str) -> str:
        """The path of a checkpoint of the first worker. A network file system may show it seconds after it is saved."""
        checkpoint = name if remote.is_remote(name) else os.path.join(self._model_dir, name)
        deadline = time.monotonic() + self._config.worker_timeout
        while digest_of_index(checkpoint) != digest or not data_files(checkpoint):
            if time.monotonic() > deadline:
                raise RetryableError(
                    f'{checkpoint}: is not seen here as {cluster.name_of(self._addresses, 0)} has saved it, within '
                    f'{self._config.worker_timeout} s (--worker_timeout). All workers need one --model_dir, whose new '
                    'files each sees; the same command resumes from the last checkpoint.'
                )
            time.sleep(_LOOK_EVERY)
        return checkpoint

    def session_hook(self) -> Optional[tf.estimator.SessionRunHook]:
        """The hook of the first session: later workers begin theirs once the first has saved the checkpoint."""
        return _RestoredTogether(self) if self._channel else None

    def summary(self) -> str:
        """The summary of a run at a worker that writes nothing."""
        first, own = (cluster.name_of(self._addresses, number) for number in (0, self._number))
        return f'{own} is done; {first} has the results'

    # Agreement before training.

    @contextlib.contextmanager
    def _visible_file(self) -> Iterator[Tuple[str, str]]:
        """A file in model_dir that the other workers must see: its name and its content."""
        name, content = f'.workers-{secrets.token_hex(8)}.unfinished', secrets.token_hex(16)
        path = os.path.join(self._model_dir, name)
        write_whole(path, content)
        try:
            yield name, content
        finally:
            tf.io.gfile.remove(path)

    def _facts(self, data_set: Optional[DatasetInfo]) -> Dict[str, Any]:
        """The facts that must be the same for all workers, by their names for the user."""
        fields = vars(self._config)
        facts = {
            'the version of the program': __version__,
            'TensorFlow': tf.__version__,
            **{f'--{name}': value for name, value in fields.items() if name not in _OF_MACHINE},
        }
        weights = ','.join(map(str, class_weights.by_label(self._config)))
        facts['the weights of classes'] = (
            hashlib.sha256(weights.encode()).hexdigest()[:DIGITS_SHOWN] if weights else 'none'
        )
        for split, (files, digest, ends, _) in samples_of(self._config).items():
            facts[f'the {split} files'] = f'{files} files, sample {digest[:DIGITS_SHOWN]}-{ends[:DIGITS_SHOWN]}'
        facts['the fingerprint of the data set'] = data_set.fingerprint if data_set else ''
        return facts

    def _seen(self, name: Any) -> Optional[str]:
        """The content of the first worker's file in this worker's model_dir; None if the file is missing."""
        path = os.path.join(self._model_dir, os.path.basename(str(name)))
        for _ in range(int(_VISIBLE_WITHIN / _LOOK_EVERY)):
            content = remote.read(path)
            if content:
                return content.decode(errors='replace')
            time.sleep(_LOOK_EVERY)
        return None

    def _problems(self, first: Dict[str, Any], content: str, answers: Dict[int, Any]) -> str:
        """A line for each difference between the first worker and another; empty if there is none."""
        problems: List[str] = []
        here = cluster.name_of(self._addresses, 0)
        for number, answer in answers.items():
            there = cluster.name_of(self._addresses, number)
            facts = answer.get('facts') if isinstance(answer, dict) else None
            if not isinstance(facts, dict):
                problems.append(f'{there}: says nothing of itself; it runs another version of the program.')
                continue
            if answer.get('seen') != content:
                problems.append(
                    f'--model_dir={shown(self._model_dir, _LONG)}: {here} has this folder, and {there} does not see it '
                    f'as {shown(answer.get("model_dir"), _LONG)}. All workers need one folder: on a file system that '
                    'the machines share, such as NFS, or in a bucket, gs://BUCKET/FOLDER.'
                )
            for name in dict.fromkeys([*first, *facts]):
                one, other = first.get(name), facts.get(name)
                if one != other:
                    values = f'{shown(one)} at {here}, {shown(other)} at {there}'
                    problems.append(f'{name}: {values}. It must be the same for all workers.')
        return '\n'.join(dict.fromkeys(problems))


class _RestoredTogether(tf.estimator.SessionRunHook):
    """Lets the first worker initialize or restore the variables and save them; the others then restore these."""

    def __init__(self, workers: Workers):
        self._workers = workers
        self._is_first = workers._config.is_first

    def begin(self) -> None:
        """On a later worker, waits for the checkpoint before a session exists."""
        if not self._is_first:
            self._checkpoint = self._workers.newest_checkpoint()

    def after_create_session(self, session: tf.Session, coord: Any) -> None:
        """On the first worker, names the checkpoint that the previous hook has saved; on another worker, restores it.

        A session itself restores the newest checkpoint that its machine sees, which may be an older one, or none.
        """
        if self._is_first:
            self._workers.newest_checkpoint()
        else:
            tf.get_collection(tf.GraphKeys.SAVERS)[0].restore(session, self._checkpoint)
