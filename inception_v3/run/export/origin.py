"""The origin of a model: its run, step and accuracy. A SavedModel carries it in `assets.extra/origin.json`."""

import json
import os
from typing import Any, Dict, NamedTuple, Optional, Sequence

from compat import tf
from compat.log import logger
from compat.messages import shown
from console.json_content import from_json, record, sealed, unsealed
from data import remote
from data.files import text_of, write_whole
from inception_v3.config import Config
from inception_v3.model_dir import absolute, digest_of_index, is_complete, step_of
from inception_v3.run.best_checkpoint import EVALUATION_FILE
from inception_v3.run.evaluations import OF_MODEL, evaluations_in, read_evaluations

# The folder of a SavedModel for files that TensorFlow does not read.
EXTRA = 'assets.extra'
_FILE = os.path.join(EXTRA, 'origin.json')
# The settings that an exported graph depends on, besides its weights.
SETTINGS = (*OF_MODEL, 'zero_init_last_scale', 'auxiliary_head', 'batch_norm')
# The setting of SavedModels that turn images upright and lay transparent ones on white; earlier ones do not.
_AS_VIEWED = 'images_as_viewed'
_LONGEST_REASON = 200


class Origin(NamedTuple):
    """The origin of a model: the absolute path of the run's folder, the checkpoint's step, 'average' or 'raw' weights.

    The digest is the SHA-256 of the checkpoint's index, which has a checksum of each variable. The settings are those
    that affect a SavedModel, its class names, and whether it prepares images as viewers show them. Accuracy and number
    of validation images are None if this checkpoint was not evaluated.
    """

    model_dir: str
    step: int
    weights: str
    digest: str
    settings: Dict[str, Any]
    top_1: Optional[float] = None
    images: Optional[int] = None

    def __str__(self) -> str:
        if self.top_1 is None:
            accuracy = 'accuracy unknown: this step has no evaluation'
        else:
            accuracy = f'top-1 {self.top_1:.2%} of {self.images:,} validation images'
        return f'run {self.model_dir}, step {self.step:,}, {self.weights} weights, {accuracy}'

    @property
    def has_images_as_viewed(self) -> bool:
        """Whether the SavedModel turns images by their EXIF orientation, and lays transparent ones on white."""
        return self.settings.get(_AS_VIEWED) is True

    @property
    def identity(self) -> Any:
        """SavedModels with equal identities are equal."""
        return self.digest, self.weights, self.settings


def origin_of(config: Config, checkpoint: str, class_names: Sequence[str] = ()) -> Origin:
    """The origin of a checkpoint whose SavedModel has these class names; `config` is the run's configuration."""
    model_dir, step, weights = str(config.model_dir), step_of(checkpoint), config.evaluated_weights
    digest = digest_of_index(checkpoint)
    # In the folder `best`, the evaluation is beside the checkpoint.
    beside = evaluations_in(os.path.join(os.path.dirname(checkpoint), EVALUATION_FILE))
    evaluations = [*beside, *read_evaluations(model_dir)]
    of_step = [e for e in reversed(evaluations) if (e.step, e.weights, e.changed) == (step, weights, ())]
    last = next((e for e in of_step if digest and e.digest == digest), None)
    return Origin(
        model_dir=absolute(model_dir),
        step=step,
        weights=weights,
        digest=digest,
        settings={
            **{name: getattr(config, name) for name in SETTINGS},
            'class_names': [*class_names],
            _AS_VIEWED: True,
        },
        top_1=last.top_1 if last else None,
        images=last.images if last else None,
    )


def write(saved_model: str, origin: Origin) -> None:
    """Writes the origin of a SavedModel into its folder."""
    path = os.path.join(saved_model, _FILE)
    tf.io.gfile.makedirs(os.path.dirname(path))
    write_whole(path, json.dumps(sealed(origin._asdict()), indent=2) + '\n')


def read(saved_model: str) -> Optional[Origin]:
    """The origin of a SavedModel; None if it has none, because an earlier version of this program exported it.

    If the origin is damaged or was changed by hand, this is logged, and None is returned.
    """
    path = os.path.join(saved_model, _FILE)
    text = text_of(path)
    try:
        origin = from_json(text, lambda values: record(Origin, unsealed(values)[0]))
        # Earlier versions without a setting exported as its default does.
        origin.settings.update({name: getattr(Config, name) for name in SETTINGS if name not in origin.settings})
        # A damaged file may have other types.
        str(origin)
        return origin
    except (TypeError, ValueError) as error:
        if text:
            logger.info('%s: is damaged, and is not used: %s', path, shown(error, _LONGEST_REASON))
    return None


def saved_models(export_dir: str) -> Dict[str, Optional[Origin]]:
    """The SavedModels in a folder, newest first, with their origins."""
    names = remote.names_in(export_dir) or []
    # A remote listing ends the names of folders with a slash.
    times = sorted((name.rstrip('/') for name in names if name.rstrip('/').isdigit()), key=int, reverse=True)
    paths = (os.path.join(export_dir, time) for time in times)
    return {path: read(path) for path in paths if tf.saved_model.loader.maybe_saved_model_directory(path)}


def exported(export_dir: str, origin: Origin) -> Optional[str]:
    """The path of a complete SavedModel of the same checkpoint, settings and class names; None if there is none."""
    same = (path for path, other in saved_models(export_dir).items() if other and other.identity == origin.identity)
    return next((path for path in same if is_complete(os.path.join(path, 'variables', 'variables'))), None)
