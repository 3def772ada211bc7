"""A folder in which `run_tpu.sh` runs among stubs: `gcloud` keeps a node in a file, `run` ends as it is told."""

import functools
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any, List, Optional, Sequence

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ('run', 'run_tpu.sh', '.ci/run')
TOOLS = ('cat', 'chmod', 'env', 'grep', 'mktemp', 'rm', 'sed', 'tee')
NODE = ['node', '--project=project', '--zone=us-central1-b']
DESCRIBE = ['gcloud', 'compute', 'tpus', 'describe', *NODE, '--format=value(state)']
LIST_BUCKET = ['gcloud', 'storage', 'ls', 'gs://bucket']
CREATE = ['gcloud', 'compute', 'tpus', 'create', *NODE, '--network=default']
CREATE += ['--accelerator-type=v2-8', '--version=1.15']
DELETE = ['gcloud', 'compute', 'tpus', 'delete', *NODE, '--quiet']
FLAGS = ['--num_shards=8', '--data_dir=gs://bucket/imagenet', '--model_dir=gs://bucket/inception_v3']
FLAGS += ['--export_dir=gs://bucket/inception_v3/export']
PREFLIGHT = ['./run', 'python', '-m', 'inception_v3.preflight', '--topology=v2-8', *FLAGS]
CLUSTER = ['--tpu=node', '--tpu_zone=us-central1-b', '--gcp_project=project']
TRAIN = ['./run', 'python', '-m', 'inception_v3.main', *CLUSTER, *FLAGS]
CHECKPOINT = ['gcloud', 'storage', 'cat', 'gs://bucket/inception_v3/checkpoint']
PAUSE = ['sleep', '0']
CHECKS = [DESCRIBE, LIST_BUCKET, PREFLIGHT]
ASK = [CHECKPOINT, PAUSE, DESCRIBE]
RESTART = [*ASK, TRAIN]
RENEW = [*ASK, DELETE, CREATE]
SILENT = {'code': 1}  # A failure without a message.

# Logs its call, and then does what the next entry of `script.json` for this kind of call says: set the node's state,
# save a checkpoint, print, wait for a signal, or fail. Without an entry, it does what the real command would do.
STUB = """
import json, os, pathlib, shutil, sys, time
world = pathlib.Path({world!r})
call = [{name!r}, *sys.argv[1:]]
with open(str(world / 'log'), 'a') as log:
    log.write(json.dumps(call) + '\\n')
kinds = 'config', 'instances', 'describe', 'rsync', 'checkpoint', 'storage', 'create', 'delete', 'preflight', 'main', ''
kind = [k for k in kinds if any(k in word for word in call[:5])][0]
node, checkpoint, script = world / 'node', world / 'checkpoint', json.loads((world / 'script.json').read_text())
todo = script[kind].pop(0) if script.get(kind) else {{}}
(world / 'script.json').write_text(json.dumps(script))
if kind == 'create':
    node.write_text('CREATING')
if 'seconds' in todo:
    (world / 'waiting').write_text(str(os.getpid()))
    time.sleep(todo['seconds'])
    (world / 'waiting').write_text('done')
sys.stderr.write(todo.get('says', ''))
if kind == 'main':
    # The program rewrites the file at every start, even without a new checkpoint.
    old = checkpoint.read_text().split(chr(34))[1] if checkpoint.exists() else 'model.ckpt-0'
    checkpoint.write_text('model_checkpoint_path: "%s"\\nlast_preserved_timestamp: %f\\n' % (
        todo.get('saves', old), time.time()))
if todo.get('node') == 'gone':
    node.unlink()
elif 'node' in todo:
    node.write_text(todo['node'])
elif not todo.get('code'):
    if kind == 'create':
        node.write_text('READY')
    if kind == 'delete':
        if not node.exists():
            sys.exit('ERROR: NOT_FOUND: Resource node was not found')
        node.unlink()
    if kind == 'describe':
        if not node.exists():
            sys.exit('ERROR: NOT_FOUND: Resource node was not found')
        print(node.read_text())
    if kind == 'checkpoint':
        print(checkpoint.read_text())
    if kind == 'rsync' and call[-1] == '.':
        shutil.copy(str(world / 'run'), '.')
        shutil.copy(str(world / 'run_tpu.sh'), '.')
if 'prints' in todo:
    print(todo['prints'])
sys.exit(todo.get('code', 0))
"""


class World:
    """A folder with the script, and a PATH with only stubs and a few tools."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.bin = folder / 'bin'
        self.bin.mkdir()
        shutil.copy(str(ROOT / 'run_tpu.sh'), str(folder))
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        stubs = [(self.bin / name, name) for name in ('gcloud', 'sleep', 'apt-get', 'shutdown')]
        for path, name in (*stubs, (folder / 'run', './run')):
            path.write_text(f'#!{sys.executable} -IS\n' + STUB.format(world=str(folder), name=name))
            path.chmod(0o755)
        self.environment = {
            'PATH': str(self.bin),
            'PROJECT': 'project',
            'ZONE': 'us-central1-b',
            'BUCKET': 'bucket',
            'TPU_NAME': 'node',
            'RESTART_SECONDS': '0',
        }
        self.script()

    def script(self, **todo: Any) -> None:
        """Sets what the next calls of each kind do."""
        (self.folder / 'script.json').write_text(json.dumps(todo))

    @property
    def node(self) -> Optional[str]:
        """The state of the node; None if it does not exist."""
        path = self.folder / 'node'
        return path.read_text().strip() if path.exists() else None

    @node.setter
    def node(self, state: str) -> None:
        (self.folder / 'node').write_text(state)

    def start(
        self, *arguments: str, shell: Sequence[str] = ('/bin/sh',), **environment: str
    ) -> 'subprocess.Popen[str]':
        return subprocess.Popen(
            [*shell, './run_tpu.sh', *arguments],
            cwd=str(self.folder),
            env={**self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # A shell cannot trap a signal that was ignored when it started, as under nohup.
            preexec_fn=functools.partial(signal.signal, signal.SIGHUP, signal.SIG_DFL),
        )

    def call(self, *arguments: str, **environment: str) -> 'subprocess.CompletedProcess[str]':
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def log(self) -> List[List[str]]:
        """The commands that ran, in order."""
        path = self.folder / 'log'
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_a_command_that_waits(self) -> int:
        """Waits until a stub sleeps; returns its PID."""
        for _ in range(600):
            path = self.folder / 'waiting'
            if path.exists() and path.read_text():
                return int(path.read_text())
            time.sleep(0.05)
        raise AssertionError('no command waits')
