"""Kubernetes jobs: the parts from the trial, and those from deploy/job.yaml."""

import pathlib
import re
from typing import Any, List

import pytest
import yaml

from inception_v3 import flags
from inception_v3.config import ConfigError
from studies.sweep import gke

ROOT = pathlib.Path(__file__).resolve().parents[3]
IMAGE = 'europe-west4-docker.pkg.dev/mine/images/inception-v3:7'
FOLDERS = ['--data_dir=gs://bucket/imagenet', '--model_dir=gs://bucket/study/a']


def job(name: str, *arguments: str) -> gke.Job:
    given = [*FOLDERS, *arguments]
    return gke.Job(name, given, flags.parse(['main', *given]).config)


def manifests_of(*jobs: gke.Job) -> List[Any]:
    return list(yaml.safe_load_all(gke.manifests(jobs, IMAGE)))


def container_of(manifest: Any) -> Any:
    (container,) = manifest['spec']['template']['spec']['containers']
    return container


def test_manifests__job_runs_the_trial_on_the_tpu_of_the_template() -> None:
    shipped = yaml.safe_load((ROOT / 'deploy' / 'job.yaml').read_text())
    (manifest,) = manifests_of(job('a', '--seed=1'))
    assert container_of(manifest)['image'] == IMAGE
    arguments = ['--data_dir=gs://bucket/imagenet', '--model_dir=gs://bucket/study/a', '--seed=1']
    assert container_of(manifest)['args'] == ['--tpu=local', *arguments]
    assert container_of(manifest)['resources'] == container_of(shipped)['resources']
    assert container_of(manifest)['resources']['limits']['google.com/tpu'] == 4
    selector = manifest['spec']['template']['spec']['nodeSelector']
    assert selector == shipped['spec']['template']['spec']['nodeSelector']
    config = flags.parse(['main', *container_of(manifest)['args']]).config
    assert (config.tpu, config.seed, config.model_dir) == ('local', 1, 'gs://bucket/study/a')


def test_manifests__other_fields_are_those_of_deploy_job_yaml() -> None:
    shipped = yaml.safe_load((ROOT / 'deploy' / 'job.yaml').read_text())
    (manifest,) = manifests_of(job('a'))
    for key in ('backoffLimit', 'podFailurePolicy'):
        assert manifest['spec'][key] == shipped['spec'][key]
    for key in ('restartPolicy', 'terminationGracePeriodSeconds'):
        assert manifest['spec']['template']['spec'][key] == shipped['spec']['template']['spec'][key]


def test_names__are_valid_and_unique() -> None:
    long = 'optimizer=RMS,learning_rate=0.165,learning_rate_decay=0.94,train_batch_size='
    names = ['A=1', 'a=1', 'ä', '=', *(f'{long}{size}/seed-1' for size in (1024, 2048))]
    # The last job is the first one in the folder of another sweep.
    jobs = [*map(job, names), job(names[0], '--model_dir=gs://bucket/study/b')]
    found = [manifest['metadata']['name'] for manifest in manifests_of(*jobs)]
    assert len(set(found)) == len(jobs)
    assert found == [manifest['metadata']['name'] for manifest in manifests_of(*jobs)]
    for name in found:
        assert re.fullmatch('[a-z0-9]([-a-z0-9]*[a-z0-9])?', name) and len(name) <= 52
    assert found[0].startswith('a-1-')


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['--use_tpu=False'], 'b: --emit=gke makes jobs for TPUs'),
        (['--tpu=emulated:8'], 'b: --emit=gke makes jobs for TPUs'),
        (['--num_shards=32'], 'b: --num_shards=32: a job of --emit=gke runs on the 8 cores of a v3-8'),
        (['--tpu=node'], 'b: leave out --tpu and --master'),
        (['--model_dir=runs/b'], 'b: --model_dir=runs/b: must be a folder on gs:// for a job on a TPU'),
        (['--data_dir='], 'b: --data_dir=: must be a folder on gs:// for a job on a TPU'),
    ],
)
def test_manifests__refuse_trials_that_cannot_be_jobs(arguments: List[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        manifests_of(job('a'), job('b', *arguments))


def test_manifests__fake_data_needs_no_folder() -> None:
    assert len(manifests_of(job('a', '--data_dir=', '--use_data=fake'))) == 1
