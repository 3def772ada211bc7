"""Google Kubernetes Engine jobs, one for each trial of a study, made from `deploy/job.yaml`."""

import hashlib
import pathlib
import re
from typing import Any, Dict, Iterable, NamedTuple, Sequence

import yaml

from data.sources import source_of
from inception_v3.config import Config, ConfigError
from inception_v3.fitting import splits_of

# The template sets what all jobs share, such as retries and the grace period. It is not part of an installed wheel.
_TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / 'deploy' / 'job.yaml'
# Of the v3-8 that the template requests.
_CORES = 8
# Kubernetes allows 63 characters; names of pods are a job's name with a suffix.
_LONGEST_NAME = 52
_DIGEST_LENGTH = 6


class Job(NamedTuple):
    """A trial, as the input of a job.

    Attributes:
      name: name of the trial, in any characters.
      arguments: arguments of the program, without --tpu and --master.
      config: the configuration that they give.
    """

    name: str
    arguments: Sequence[str]
    config: Config


def manifests(jobs: Iterable[Job], image: str) -> str:
    """YAML documents for `kubectl apply --filename=-`, one for each job.

    Each job has a v3-8 of its own, as in `deploy/job.yaml`.

    Args:
      jobs: the trials.
      image: the container image with its registry, built by `deploy/Dockerfile`.

    Raises:
      ConfigError: a trial is for a CPU or a slice, or its folders are not on gs://; or `deploy/job.yaml` is missing.
    """
    if not _TEMPLATE.exists():
        raise ConfigError(f'--emit=gke: {_TEMPLATE} is missing. Run the command in a copy of the repository.')
    return yaml.safe_dump_all([_manifest(job, image) for job in jobs], sort_keys=False, width=120)


def _manifest(job: Job, image: str) -> Dict[str, Any]:
    if not job.config.use_tpu or job.config.is_emulated:
        raise ConfigError(f'{job.name}: --emit=gke makes jobs for TPUs, but this trial runs on a CPU. Add --use_tpu.')
    if job.config.tpu or job.config.master:
        raise ConfigError(f'{job.name}: leave out --tpu and --master: each job has a TPU of its own, --tpu=local.')
    if job.config.num_shards != _CORES:
        raise ConfigError(
            f'{job.name}: --num_shards={job.config.num_shards}: a job of --emit=gke runs on the {_CORES} cores of a '
            'v3-8. Choose other trials with --filter, and run this one with run_tpu.sh.'
        )
    real = job.config.use_data == 'real'
    places = source_of(job.config).places(splits_of(job.config)) or {'data_dir': ''} if real else {}
    for flag, folder in {'model_dir': job.config.model_dir, **places}.items():
        if not str(folder).startswith('gs://'):
            raise ConfigError(f'{job.name}: --{flag}={folder}: must be a folder on gs:// for a job on a TPU.')
    manifest = yaml.safe_load(_TEMPLATE.read_text())
    manifest['metadata']['name'] = _kubernetes_name(job)
    manifest['metadata']['labels'] = {'app': 'inception-v3-study'}
    (container,) = manifest['spec']['template']['spec']['containers']
    container['image'] = image
    container['args'] = ['--tpu=local', *job.arguments]
    return manifest


def _kubernetes_name(job: Job) -> str:
    """A job name in the characters that Kubernetes allows, unique for a trial and its folder."""
    readable = re.sub('[^a-z0-9]+', '-', job.name.lower()).strip('-')
    digest = hashlib.sha256(f'{job.name} {job.config.model_dir}'.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f'{readable[: _LONGEST_NAME - _DIGEST_LENGTH - 1].rstrip("-")}-{digest}'.lstrip('-')
