"""RevNet-38 trained eagerly, in the loop of the document: with `tf.function` (formerly `defun`) or without.

    ./run python -m examples.eager_revnet
    ./run python -m examples.eager_revnet --nodefun

trains 80 steps on the handwritten digits, which it first writes to TFRecords, and saves a checkpoint every ten steps.
The same command resumes from the last one, also with more `--steps`, with the weights of an uninterrupted run. The
backward pass recomputes activations; `--norebuild_activations` stores them. All these variants have the same weights,
to the bit.
"""

import argparse
import os
import sys
from typing import Any, Callable, Optional, Sequence, Tuple

from compat import tf
from compat.errors import CommandError
from console import program
from data import dataset_info, records, tf_example
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import revnet
from inception_v3.networks.keras_revnet import RevNet
from tools.datasets import digits
from tools.parsers import new_parser, number_of

ARCHITECTURES = {
    'revnet38': revnet.REVNET_38,
    'revnet110': revnet.REVNET_110,
    'revnet56': revnet.REVNET_56,
    'revnet104': revnet.REVNET_104,
}
# The steps of the paper's schedule for CIFAR, divided by 1000.
BOUNDARIES, RATES = [40, 60], [0.02, 0.002, 0.0002]


class Trainer:
    """A network, its optimizer, learning rate and number of steps, and their checkpoints.

    Args:
      folder: the folder of the checkpoints, of which the last one is restored.
      network: name of a RevNet.
      defun: run forward pass, gradients and their application each as a graph, by `tf.function`, instead of operation
        by operation.
      rebuild_activations: recompute activations in the backward pass.
    """

    def __init__(self, folder: str, network: str, defun: bool, rebuild_activations: bool):
        self.step = tf.Variable(0, dtype=tf.int64, name='step', use_resource=True)
        self.learning_rate = tf.Variable(RATES[0], name='learning_rate', use_resource=True)
        self.model = RevNet(ARCHITECTURES[network], 11, lambda training: BatchNorm(training, 0.9), rebuild_activations)
        optimizer = tf.train.MomentumOptimizer(self.learning_rate, momentum=0.9)

        def apply_gradients(gradients: Any) -> None:
            optimizer.apply_gradients(zip(gradients, self.model.trainable_variables), global_step=self.step)

        def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
            return tf.function(function, autograph=False) if defun else function

        self._forward = compiled(lambda images: self.model(images, training=True))
        self._compute_gradients = compiled(self.model.compute_gradients)
        self._apply_gradients = compiled(apply_gradients)
        # Create all variables: a `tf.function` may create none after its first call.
        self.model(tf.zeros([1, 32, 32, 3]), training=False)
        optimizer.apply_gradients([(tf.zeros_like(v), v) for v in self.model.trainable_variables])
        checkpoint = tf.train.Checkpoint(
            model=self.model, optimizer=optimizer, learning_rate=self.learning_rate, step=self.step
        )
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        if self._manager.latest_checkpoint:
            try:
                checkpoint.restore(self._manager.latest_checkpoint).assert_existing_objects_matched()
            except (AssertionError, ValueError):
                path = self._manager.latest_checkpoint
                raise CommandError(f'{path}: is not of this network. Name another folder with --folder.')

    def train(self, data_dir: str, steps: int, batch_size: int, steps_per_checkpoint: int) -> None:
        """Trains up to step `steps`, and saves checkpoints."""
        step = int(self.step.numpy())
        # A fixed seed keeps the order, so that a resumed run skips exactly the images that it has seen.
        examples = serialized(data_dir, records.TRAIN).shuffle(2000, seed=1).repeat().skip(step * batch_size)
        dataset = examples.map(parse).batch(batch_size, drop_remainder=True).take(max(steps - step, 0))
        for image, label in dataset:
            step += 1
            self.learning_rate.assign(tf.train.piecewise_constant(self.step, BOUNDARIES, RATES)())
            _, hidden = self._forward(image)
            gradients, loss = self._compute_gradients(hidden, label)
            self._apply_gradients(gradients)
            print(f'step {step} of {steps}, loss {float(loss.numpy()):.4f}', flush=True)
            if step % steps_per_checkpoint == 0 or step == steps:
                self._manager.save(checkpoint_number=step)

    def accuracy(self, data_dir: str) -> float:
        """The fraction of the validation images that are classified correctly."""
        right = total = 0
        for image, label in serialized(data_dir, records.VALIDATION).map(parse).batch(100):
            logits, _ = self.model(image, training=False)
            right += int((logits.numpy().argmax(1) == label.numpy()).sum())
            total += int(label.shape[0])
        return right / total


def serialized(data_dir: str, split: str) -> tf.data.Dataset:
    """The records of a split."""
    return tf.data.TFRecordDataset(records.find_shards(data_dir, split))


def parse(record: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """The image of a digit without its margin, float32 [32, 32, 3] in [-1, 1], and its label."""
    encoded, label, _ = tf_example.parse(record, with_boxes=False)
    image = tf.image.decode_jpeg(encoded, channels=3)[8:-8:2, 8:-8:2]
    image.set_shape([32, 32, 3])
    return tf.cast(image, tf.float32) / 127.5 - 1, label


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('examples.eager_revnet', str(__doc__))
    positive = number_of(int, 1)
    parser.add_argument('--folder', default=os.path.join('runs', 'eager_revnet'), help='checkpoints (%(default)s)')
    parser.add_argument('--data_dir', default=os.path.join('runs', 'digits_data'), help='the digits (%(default)s)')
    parser.add_argument('--network', default='revnet38', choices=[*ARCHITECTURES], help='the network (%(default)s)')
    parser.add_argument('--nodefun', action='store_true', help='run operation by operation, not as graphs')
    parser.add_argument('--norebuild_activations', action='store_true', help='store activations, recompute none')
    parser.add_argument('--steps', type=positive, default=80, help='training steps in all (%(default)s)')
    parser.add_argument('--batch_size', type=positive, default=20, help='images in a step (%(default)s)')
    parser.add_argument('--steps_per_checkpoint', type=positive, default=10, help='steps (%(default)s)')
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Runs a command line, and returns its exit code."""
    arguments = _parser().parse_args(argv)
    tf.enable_eager_execution()
    tf.set_random_seed(1)

    def command(screen: Any) -> None:
        digits.build_if_missing(arguments.data_dir)
        info = dataset_info.read(arguments.data_dir)
        if info is None or info.name != 'digits':
            raise CommandError(
                f'--data_dir={arguments.data_dir}: is not of the digits. Name a new folder to write them.'
            )
        trainer = Trainer(
            arguments.folder, arguments.network, not arguments.nodefun, not arguments.norebuild_activations
        )
        trainer.train(arguments.data_dir, arguments.steps, arguments.batch_size, arguments.steps_per_checkpoint)
        print(f'accuracy {trainer.accuracy(arguments.data_dir):.0%} of the validation images')

    return program.run(command, 'interrupted; the same command resumes from the last checkpoint')


if __name__ == '__main__':
    sys.exit(main())
