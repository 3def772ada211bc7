"""Jobs for Google Kubernetes Engine, one for each trial of a study, in the manner of `deploy/job.yaml`."""

import hashlib
import pathlib
import re
from typing import Any, Dict, Iterable, NamedTuple, Sequence

import yaml

from inception_v3.config import Config, ConfigError

# What holds for every job (when it is done again, how long it may take to end) is told there, once.
_TEMPLATE = pathlib.Path(__file__).resolve().parents[2] / 'deploy' / 'job.yaml'
_ENDPOINTS = '$(KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS)'
_TPU = 'cloud-tpus.google.com/v2'
# A name of Kubernetes has at most 63 characters; a job's pods add some of their own.
_LONGEST_NAME = 52
_DIGEST_LENGTH = 6


class Job(NamedTuple):
    """What a trial's job is made of.

    Attributes:
      name: of the trial, in any characters.
      arguments: its command line after the program's name; what names a TPU is added.
      config: what that command line amounts to.
    """

    name: str
    arguments: Sequence[str]
    config: Config


def manifests(jobs: Iterable[Job], image: str) -> str:
    """YAML documents for `kubectl apply --filename=-`, one for each job.

    A job gets a v2 of the trial's `num_shards` cores, and Kubernetes puts in its address, or, of a slice, its hosts'.

    Args:
      jobs: the trials.
      image: the container's, as `deploy/Dockerfile` makes it, with its registry.

    Raises:
      ConfigError: a trial is for a CPU, or keeps its results where a container loses them.
    """
    return yaml.safe_dump_all([_manifest(job, image) for job in jobs], sort_keys=False, width=120)


def _manifest(job: Job, image: str) -> Dict[str, Any]:
    if not job.config.use_tpu or job.config.is_emulated:
        raise ConfigError(f'{job.name}: --emit=gke makes jobs for TPUs, and this trial is for a CPU (--use_tpu).')
    if job.config.tpu or job.config.master:
        raise ConfigError(f'{job.name}: leave out --tpu and --master: Kubernetes makes a TPU, and puts in its address.')
    for flag in ('model_dir', 'data_dir'):
        folder = getattr(job.config, flag)
        if not str(folder).startswith('gs://') and not (flag == 'data_dir' and job.config.use_data == 'fake'):
            raise ConfigError(f'{job.name}: --{flag}={folder}: a job on a TPU needs a folder on gs://.')
    manifest = yaml.safe_load(_TEMPLATE.read_text())
    manifest['metadata']['name'] = _kubernetes_name(job)
    manifest['metadata']['labels'] = {'app': 'inception-v3-study'}
    (container,) = manifest['spec']['template']['spec']['containers']
    container['image'] = image
    # A slice has an address for each host, and --tpu takes a list.
    address = f'--master={_ENDPOINTS}' if job.config.hosts == 1 else f'--tpu={_ENDPOINTS}'
    container['args'] = [address, *job.arguments]
    container['resources']['limits'] = {_TPU: job.config.num_shards}
    return manifest


def _kubernetes_name(job: Job) -> str:
    """A name of the letters, digits and hyphens that Kubernetes allows, different for each trial and its folder."""
    readable = re.sub('[^a-z0-9]+', '-', job.name.lower()).strip('-')
    digest = hashlib.sha256(f'{job.name} {job.config.model_dir}'.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f'{readable[: _LONGEST_NAME - _DIGEST_LENGTH - 1].rstrip("-")}-{digest}'.lstrip('-')
