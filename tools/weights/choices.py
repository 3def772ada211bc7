"""The choices of the command line: kinds of files to write, changes of class 0, and ranges of pixels."""

from typing import Mapping, NamedTuple, Tuple

# The choices for class 0: leave the classes as they are, add one that is never predicted, or drop it.
KEEP, ADD, DROP = 'keep', 'add', 'drop'
# The ranges of pixels that other frameworks give a model: names for `changes.images_of`.
PIXELS = ('inception', 'imagenet', 'unit')
_TORCH = ('.pth', '.pt', '.bin', '.safetensors')


class Target(NamedTuple):
    """A kind of file, with the endings of its names; a checkpoint's name may have none.

    The framework has networks of the same architecture, with or without the auxiliary head, and only in their published
    width or in any width. `load` is the expression that loads a file.
    """

    endings: Tuple[str, ...]
    networks: Tuple[str, ...]
    has_auxiliary_head: bool
    is_published: bool
    load: str


_INCEPTION, _BOTH = ('inception_v3',), ('inception_v3', 'resnet50')
_TORCHVISION = 'torchvision.models.{model}(num_classes={classes}{options}).load_state_dict({loader}({path!r}))'
TARGETS: Mapping[str, Target] = {
    'keras': Target(
        ('.h5',), _INCEPTION, False, True, 'tf.keras.applications.InceptionV3(weights={path!r}, classes={classes})'
    ),
    'npz': Target(('.npz',), _BOTH, True, False, '--init_from={path}, or numpy.load({path!r})'),
    'slim': Target(
        ('', '.ckpt'), _INCEPTION, True, False, "tf.train.Saver(slim.get_model_variables()).restore(session, '{path}')"
    ),
    'timm': Target(
        _TORCH, _BOTH, False, True, 'timm.create_model({model!r}, num_classes={classes}, checkpoint_path={path!r})'
    ),
    'torchvision': Target(_TORCH, _BOTH, True, True, _TORCHVISION),
}
