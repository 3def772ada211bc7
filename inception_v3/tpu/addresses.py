"""Finds a Cloud TPU: this machine's own, or the machines of a named TPU."""

import glob
import os
import socket
import time
import urllib.parse
from typing import Any, List, Optional

from compat.names import knows_tpu_vms  # isort: skip  Before TensorFlow is loaded.
from compat import tf  # isort: skip
from tensorflow.python.framework import kernels

from compat.errors import CommandError, RetryableError
from inception_v3.tpu import topology

# A device file for each chip of v2 and v3.
_DEVICES = '/dev/accel[0-9]*'
# The operation that starts a TPU; a TensorFlow without TPU support has no kernel for it.
_STARTS_TPU = '_ConfigureDistributedTPU'
# Keeps TensorFlow from loading its library for TPUs.
_LOAD_LIBRARY = 'TPU_LOAD_LIBRARY'
# The port of a TPU's server; the seconds that it may take to accept a connection, and the pauses before each attempt.
_PORT = 8470
_CONNECTS_WITHIN = 10
_PAUSES = (0, 5, 5)
_IMAGES = f'{topology.software_version(topology.CLOUD_TPUS["v2-8"])}, or -pod-se for a slice'


def resolver_of(
    tpu: str, zone: Optional[str], project: Optional[str], cores: int, session_config: tf.ConfigProto
) -> 'tf.distribute.cluster_resolver.TPUClusterResolver':
    """Returns TensorFlow's resolver of a TPU, which gives the address of its first machine and of all machines.

    The TPU is `local`, this machine's own, which must have `cores` cores; or a name; or the addresses of its machines,
    grpc://A:8470,B:8470. Zone and project, if not given, come from the metadata server of Google Cloud. This may begin
    the first session of the process, whose configuration determines the threads of all sessions.

    Raises:
      CommandError: the TPU does not exist, or this TensorFlow cannot use it.
    """
    if tpu != topology.LOCAL:
        resolver = _look_up(tpu, zone, project)
        if tpu.startswith('grpc://') or not knows_tpu_vms():
            return resolver
        machines = resolver.cluster_spec().as_dict()['worker']
        if len(machines) > 1 and _devices() and os.environ.get(_LOAD_LIBRARY) != '0':
            raise CommandError(
                f'--tpu={tpu}: a slice of {len(machines)} machines, of which this is one: start the run with '
                f"{_LOAD_LIBRARY}=0 in the environment, so that it leaves this machine's TPU to its TensorFlow server."
            )
        # The machine of a v2-8 or v3-8 runs no server; only a process on that machine can reach its TPU.
        if len(machines) > 1 or not _is_this_machine(machines[0]):
            return resolver
    check_local(cores, session_config)
    return tf.distribute.cluster_resolver.TPUClusterResolver(topology.LOCAL)


def check_local(cores: int, session_config: tf.ConfigProto) -> None:
    """Checks that this process can run on the `cores` cores of this machine's TPU; see `resolver_of`.

    Raises:
      CommandError: this process cannot; the message says why.
    """
    version, devices = tf.__version__, _devices()
    if not knows_tpu_vms():
        raise CommandError(
            f'--tpu=local: TensorFlow {version} cannot use the TPU of its own machine. On a TPU VM, run the same '
            'command in a checkout of this program with ./run --tf=image, on its TensorFlow 2.15.'
        )
    if not devices:
        raise CommandError(
            f'--tpu=local: this machine has no TPU: there is no {_DEVICES}. Run this on a TPU VM of a v2 or v3, name a '
            'TPU with --tpu=NAME, emulate one with --tpu=emulated:8, or run on the CPU with --use_tpu=False.'
        )
    with tf.Graph().as_default(), tf.Session(config=session_config) as session:
        found = sum(device.device_type == 'TPU' for device in session.list_devices())
    if found == cores:
        return
    if found:
        raise CommandError(
            f'--tpu=local: this machine has {found} cores, and the run expects {cores}. This program runs on v2 and '
            'v3, whose machines have 8. Name a slice with --tpu=NAME.'
        )
    if not kernels.get_registered_kernels_for_op(_STARTS_TPU).kernel:
        raise CommandError(
            f'--tpu=local: TensorFlow {version} in {os.path.dirname(tf.__file__)} is built without TPU support, as all '
            "from PyPI are. Use ./run --tf=image in a checkout, which has that of the machine's image, of the version "
            f'{_IMAGES}; build a container with deploy/Dockerfile and HARDWARE=tpu.'
        )
    kind = CommandError if os.environ.get(_LOAD_LIBRARY) == '0' else RetryableError
    raise kind(
        f'--tpu=local: TensorFlow {version} finds no cores of the TPU at {devices[0]}. Another process may be using it '
        f'(sudo fuser -v {devices[0]}), or {_LOAD_LIBRARY}=0 in the environment keeps TensorFlow from it; in a slice, '
        f'name the TPU with --tpu=NAME. Otherwise the software version of the TPU VM is not {_IMAGES}.'
    )


def check_answers(master: str) -> None:
    """Checks that the TensorFlow server of a TPU accepts connections. A session would wait a day for it.

    Raises:
      CommandError: the server does not accept connections.
    """
    if not master:
        return
    url, problem = urllib.parse.urlsplit(master), ''
    for pause in _PAUSES:
        time.sleep(pause)
        try:
            socket.create_connection((str(url.hostname), url.port or _PORT), timeout=_CONNECTS_WITHIN).close()
            return
        except OSError as error:
            problem = error.strerror or str(error)
    raise RetryableError(
        f'{master}: no TensorFlow server of a TPU answers: {problem}. A TPU VM of one machine has none: on that '
        'machine, run the same command with --tpu=local. A slice has one if its software version ends in -pod-se, and '
        'answers its own machines: run the same command on the first.'
    )


def _look_up(tpu: str, zone: Optional[str], project: Optional[str]) -> Any:
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu, zone=zone, project=project)
        resolver.master()
        return resolver
    except Exception as error:
        # Google's packages raise errors of many types, and TensorFlow's versions pass on different ones.
        text = str(error)
        if isinstance(error, ImportError) or 'Missing runtime dependency' in text:
            raise CommandError(
                f"--tpu={tpu}: the packages that look up a TPU's address are not installed. Install them with pip "
                "install '.[tpu]', or give the address: --master=grpc://ADDRESS:8470."
            )
        if 'not yet ready' in text:
            raise RetryableError(f'--tpu={tpu}: {text}.')
        raise CommandError(
            f'--tpu={tpu}: its address cannot be looked up; outside of Google Cloud, give --tpu_zone and '
            f'--gcp_project, too. {text}'
        )


def _devices() -> List[str]:
    return sorted(glob.glob(_DEVICES))


def _is_this_machine(address: str) -> bool:
    """Whether an address ADDRESS:PORT is one of this machine's own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Only an address of this machine can be bound; nothing is sent.
            probe.bind((address.rpartition(':')[0], 0))
            return True
        except OSError:
            return False
