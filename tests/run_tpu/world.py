"""A folder in which `run_tpu.sh` runs among stubs: `gcloud` keeps a node in a file, `run` ends as it is told."""

import json
import pathlib
import shutil
import subprocess
import sys
from typing import Any, List, Optional, Sequence

from tests.support.processes import text_of, wait_for

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
LIMIT = 120  # Seconds that a test waits; far more than a busy machine needs.

# Logs its call, and then does what the next entry of `script.json` for this kind of call says: set the node's state,
# save a checkpoint, print, wait until the test goes on, or fail. Without an entry, it does what the real command would
# do. It imports few modules, since hundreds of them run.
STUB = """
import json, os, sys, time
here = os.getcwd()
os.chdir({world!r})
call = [{name!r}, *sys.argv[1:]]
with open('log', 'a') as log:
    log.write(json.dumps(call) + '\\n')
def read(name):
    with open(name) as file:
        return file.read()
def write(name, text):
    with open(name + '.new', 'w') as file:
        file.write(text)
    os.rename(name + '.new', name)
kinds = 'config', 'instances', 'describe', 'rsync', 'checkpoint', 'storage', 'create', 'delete', 'preflight', 'main', ''
kind = [k for k in kinds if any(k in word for word in call[:5])][0]
script = json.loads(read('script.json'))
todo = script[kind].pop(0) if script.get(kind) else {{}}
write('script.json', json.dumps(script))
if kind == 'create':
    write('node', 'CREATING')
if todo.get('waits'):
    write('waiting', str(os.getpid()))
    end = time.time() + {limit}
    while not os.path.exists('go on') and time.time() < end:
        time.sleep(.02)
    write('waiting', 'done')
sys.stderr.write(todo.get('says', ''))
if kind == 'main':
    # The program rewrites the file at every start, even without a new checkpoint.
    old = read('checkpoint').split(chr(34))[1] if os.path.exists('checkpoint') else 'model.ckpt-0'
    write('checkpoint', 'model_checkpoint_path: "%s"\\nlast_preserved_timestamp: %f\\n' % (
        todo.get('saves', old), time.time()))
if todo.get('node') == 'gone':
    os.remove('node')
elif 'node' in todo:
    write('node', todo['node'])
elif not todo.get('code'):
    if kind == 'create':
        write('node', 'READY')
    if kind in ('delete', 'describe') and not os.path.exists('node'):
        sys.exit('ERROR: NOT_FOUND: Resource node was not found')
    if kind == 'delete':
        os.remove('node')
    if kind == 'describe':
        print(read('node'))
    if kind == 'checkpoint':
        print(read('checkpoint'))
    if kind == 'rsync' and call[-1] == '.':
        import shutil
        for name in ('run', 'run_tpu.sh'):
            shutil.copy(name, here)
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
        self.temporary = folder / 'tmp'
        self.temporary.mkdir()
        shutil.copy(str(ROOT / 'run_tpu.sh'), str(folder))
        for tool in TOOLS:
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        stubs = [(self.bin / name, name) for name in ('gcloud', 'sleep', 'apt-get', 'shutdown')]
        for path, name in (*stubs, (folder / 'run', './run')):
            path.write_text(f'#!{sys.executable} -IS\n' + STUB.format(world=str(folder), name=name, limit=LIMIT))
            path.chmod(0o755)
        self.environment = {
            'PATH': str(self.bin),
            'TMPDIR': str(self.temporary),
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
        self, *arguments: str, shell: Sequence[str] = ('/bin/sh',), output: Optional[int] = None, **environment: Any
    ) -> 'subprocess.Popen[bytes]':
        """Starts the script, which writes to `output`; by default, to the files that `call` and `errors` read."""
        with open(str(self.folder / 'stdout'), 'wb') as stdout, open(str(self.folder / 'stderr'), 'wb') as stderr:
            return subprocess.Popen(
                [*shell, './run_tpu.sh', *arguments],
                cwd=str(self.folder),
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stdout if output is None else output,
                stderr=stderr if output is None else output,
                start_new_session=True,
            )

    def call(self, *arguments: str, **environment: Any) -> 'subprocess.CompletedProcess[str]':
        """Runs the script to its end."""
        code = self.start(*arguments, **environment).wait(timeout=LIMIT)
        return subprocess.CompletedProcess(arguments, code, (self.folder / 'stdout').read_text(), self.errors())

    def errors(self) -> str:
        """The text that the script has written to stderr so far."""
        return (self.folder / 'stderr').read_text()

    def log(self) -> List[List[str]]:
        """The commands that ran, in order."""
        return [json.loads(line) for line in text_of(str(self.folder / 'log')).splitlines()]

    def forget(self) -> None:
        """Empties the log and lets the next command that waits, wait."""
        for name in ('log', 'waiting', 'go on'):
            if (self.folder / name).exists():
                (self.folder / name).unlink()

    def waiting(self) -> int:
        """Waits until a command waits; returns its PID."""
        return int(wait_for(lambda: text_of(str(self.folder / 'waiting')), LIMIT))

    def message(self, script: 'subprocess.Popen[bytes]', text: str) -> None:
        """Waits for a message of the script."""
        wait_for(lambda: text in self.errors() or script.poll() is not None, LIMIT)
        assert text in self.errors()

    def go_on(self) -> None:
        """Lets the command that waits go on."""
        (self.folder / 'go on').touch()
