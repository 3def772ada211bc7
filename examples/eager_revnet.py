"""RevNet-38 trained eagerly, in the loop of the document: with `tf.function` (formerly `defun`) or without.

    ./run python -m examples.eager_revnet
    ./run python -m examples.eager_revnet --nodefun

trains 60 steps on generated images of 32 x 32 pixels and ten classes, and saves a checkpoint every ten steps. The same
command with more `--steps` resumes from the last one, and gives the weights of a run without a break. The backward pass
recomputes activations; `--norebuild_activations` stores them. All of these ways give the same weights, to the bit.
"""

import argparse
import os
import sys
from typing import Any, List, Optional, Sequence, Tuple

import numpy as np

from console import program
from console.command_line import new_parser, number_of
from console.errors import CommandError
from console.tensorflow_versions import tf
from inception_v3.batch_norm import BatchNorm
from inception_v3.networks import layers
from inception_v3.networks.registry import NETWORKS

CLASSES, SIDE = 10, 32


class Trainer:
    """A network, its optimizer, the number of steps, and their checkpoints.

    Args:
      folder: of the checkpoints; the last one is restored.
      network: name of a RevNet.
      defun: run a step as a graph, by `tf.function`, instead of operation by operation.
      rebuild_activations: recompute activations in the backward pass.
    """

    def __init__(self, folder: str, network: str, defun: bool, rebuild_activations: bool):
        self.step = tf.Variable(0, dtype=tf.int64, name='step', use_resource=True)
        self._optimizer = tf.train.MomentumOptimizer(learning_rate=0.02, momentum=0.9)

        def build(images: tf.Tensor, is_training: bool) -> tf.Tensor:
            logits, _ = NETWORKS[network].build(
                images,
                CLASSES,
                is_training,
                conv=layers.conv2d,
                norm=BatchNorm(is_training, 0.9),
                rebuild_activations=rebuild_activations,
            )
            return logits

        self.net = tf.make_template('net', build)
        # The first call creates the variables: a `tf.function` may not, after its first call. The second one makes the
        # template's scope, which otherwise would belong to the graph of that `tf.function`.
        for _ in range(2):
            self.net(tf.zeros([1, SIDE, SIDE, 3]), False)
        self._optimizer.apply_gradients([(tf.zeros_like(v), v) for v in self.net.trainable_variables])
        self._train_step = tf.function(self._one_step, autograph=False) if defun else self._one_step
        checkpoint = tf.train.Checkpoint(net=self.net, optimizer=self._optimizer, step=self.step)
        self._manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
        if self._manager.latest_checkpoint:
            try:
                checkpoint.restore(self._manager.latest_checkpoint).assert_existing_objects_matched()
            except (AssertionError, ValueError):
                path = self._manager.latest_checkpoint
                raise CommandError(f'{path}: is not of this network. Name another folder with --folder.')

    def gradients(self, images: tf.Tensor, labels: tf.Tensor) -> Tuple[tf.Tensor, List[tf.Tensor]]:
        """The loss of a batch, and its gradients by the trainable variables."""
        with tf.GradientTape() as tape:
            logits = self.net(images, True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, self.net.trainable_variables)

    def _one_step(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        loss, gradients = self.gradients(images, labels)
        self._optimizer.apply_gradients(zip(gradients, self.net.trainable_variables))
        self.step.assign_add(1)
        return loss

    def train(self, steps: int, batch_size: int, steps_per_checkpoint: int) -> None:
        """Trains until `steps` are done in all, and saves checkpoints."""
        while int(self.step.numpy()) < steps:
            images, labels = batch(int(self.step.numpy()), batch_size)
            loss = float(self._train_step(tf.constant(images), tf.constant(labels)).numpy())
            step = int(self.step.numpy())
            print(f'step {step} of {steps}, loss {loss:.4f}', flush=True)
            if step % steps_per_checkpoint == 0 or step == steps:
                self._manager.save(checkpoint_number=step)

    def accuracy(self, images: np.ndarray, labels: np.ndarray) -> float:
        """The fraction of the images whose class is found."""
        logits = self.net(tf.constant(images), False).numpy()
        return float((logits.argmax(1) == labels).mean())


def batch(number: int, size: int) -> Tuple[np.ndarray, np.ndarray]:
    """The batch of a number: float32 [size, 32, 32, 3] in [-1, 1], and int32 [size]; a pattern for each class."""
    patterns = np.random.RandomState(0).uniform(-1, 1, [CLASSES, 4, 4, 3]).repeat(8, 1).repeat(8, 2)
    random = np.random.RandomState(2 + number)
    labels = random.randint(CLASSES, size=size)
    images = patterns[labels] / 2 + random.normal(0, 0.2, [size, SIDE, SIDE, 3])
    return images.clip(-1, 1).astype(np.float32), labels.astype(np.int32)


def _parser() -> argparse.ArgumentParser:
    parser = new_parser('examples.eager_revnet', str(__doc__))
    positive = number_of(int, 1)
    parser.add_argument('--folder', default=os.path.join('runs', 'eager_revnet'), help='checkpoints (%(default)s)')
    names = [name for name in NETWORKS if name.startswith('revnet')]
    parser.add_argument('--network', default='revnet38', choices=names, help='the network (%(default)s)')
    parser.add_argument('--nodefun', action='store_true', help='run steps operation by operation, not as a graph')
    parser.add_argument('--norebuild_activations', action='store_true', help='store activations, recompute none')
    parser.add_argument('--steps', type=positive, default=60, help='training steps in all (%(default)s)')
    parser.add_argument('--batch_size', type=positive, default=20, help='images in a step (%(default)s)')
    parser.add_argument('--steps_per_checkpoint', type=positive, default=10, help='steps (%(default)s)')
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Trains as a command line says, and returns the exit code."""
    arguments = _parser().parse_args(argv)
    tf.enable_eager_execution()
    tf.set_random_seed(1)

    def command(screen: Any) -> None:
        trainer = Trainer(
            arguments.folder, arguments.network, not arguments.nodefun, not arguments.norebuild_activations
        )
        trainer.train(arguments.steps, arguments.batch_size, arguments.steps_per_checkpoint)
        # Images of no training step.
        print(f'accuracy {trainer.accuracy(*batch(-1, 100)):.0%} of 100 other images')

    return program.run(command, 'interrupted; the same command resumes from the last checkpoint')


if __name__ == '__main__':
    sys.exit(main())
