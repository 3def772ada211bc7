"""A folder in which `run_tpu.sh` runs among stubs: `gcloud` keeps a node in a file, `run` ends as it is told."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, List, Optional, Sequence

from tests.support.processes import text_of, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ('run', 'run_tpu.sh', '.ci/run')
TOOLS = ('cat', 'chmod', 'date', 'env', 'grep', 'mktemp', 'rm', 'sed', 'setsid', 'tail', 'tee', 'timeout')
NODE = ['node', '--project=project', '--zone=us-central1-b']
FIELDS = 'state,acceleratorType,tensorflowVersion,createTime,description'
DESCRIBE = ['gcloud', 'compute', 'tpus', 'describe', *NODE, f'--format=value({FIELDS})']
LIST_BUCKET = ['gcloud', 'storage', 'ls', 'gs://bucket']
MARK = '--description=MARK'  # In place of a description that no other start has.
CREATE = ['gcloud', 'compute', 'tpus', 'create', *NODE, '--network=default', MARK]
CREATE += ['--accelerator-type=v2-8', '--version=1.15']
DELETE = ['gcloud', 'compute', 'tpus', 'delete', *NODE, '--quiet']
FLAGS = ['--num_shards=8', '--data_dir=gs://bucket/imagenet', '--model_dir=gs://bucket/inception_v3']
FLAGS += ['--export_dir=gs://bucket/inception_v3/export']
CLUSTER = ['--tpu=node', '--tpu_zone=us-central1-b', '--gcp_project=project']
PREFLIGHT = ['./run', 'python', '-m', 'inception_v3.preflight', '--topology=v2-8', *CLUSTER, *FLAGS]
TRAIN = ['./run', 'python', '-m', 'inception_v3.main', *CLUSTER, *FLAGS]
CHECKPOINT = ['gcloud', 'storage', 'cat', 'gs://bucket/inception_v3/checkpoint']
PAUSE = ['sleep', '0']
CHECKS = [LIST_BUCKET, PREFLIGHT]
ASK = [CHECKPOINT, PAUSE]
RESTART = [*ASK, TRAIN]
RENEW = [*ASK, DELETE, CREATE]
OTHER = {'state': 'READY', 'acceleratorType': 'v2-8', 'tensorflowVersion': '1.15'}
OTHER.update({'createTime': '2026-01-01T00:00:00Z', 'description': ''})
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
if kind == 'instances' and call[3] != 'create':
    kind = 'machine'
todo = script[kind].pop(0) if script.get(kind) else {{}}
write('script.json', json.dumps(script))
if kind == 'create':
    flags = dict(word[2:].split('=', 1) for word in call if word.startswith('--') and '=' in word)
    node = dict(acceleratorType=flags['accelerator-type'], tensorflowVersion=flags['version'], state='CREATING')
    node.update(createTime=time.strftime('%Y-%m-%dT%H:%M:%S.5Z', time.gmtime()), description=flags['description'])
    if not os.path.exists('node'):
        write('node', json.dumps(node))
if todo.get('ignores'):
    import signal
    for name in ('INT', 'TERM', 'HUP', 'QUIT'):
        signal.signal(getattr(signal, 'SIG' + name), signal.SIG_IGN)
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
elif todo.get('node') == {{}}:
    pass
elif todo.get('node'):
    node = json.loads(read('node')) if os.path.exists('node') else {{}}
    node.update(todo['node'])
    write('node', json.dumps(node))
elif not todo.get('code'):
    if kind == 'create':
        node['state'] = 'READY'
        write('node', json.dumps(node))
    if kind in ('delete', 'describe') and not os.path.exists('node'):
        sys.exit('ERROR: NOT_FOUND: Resource node was not found')
    if kind == 'delete':
        os.remove('node')
    if kind == 'describe':
        node = json.loads(read('node'))
        fields = call[-1].split('(')[1].strip(')').split(',')
        print(*[node.get(field, '') for field in fields], sep=chr(9))
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


def unmarked(call: Sequence[str]) -> List[str]:
    """Returns a command without what differs between starts."""
    return [re.sub(r'(--description|RUN_TPU_MARK)=run_tpu\.sh-\w+-\d+', r'\1=MARK', word) for word in call]


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
        return json.loads(path.read_text())['state'] if path.exists() else None

    @node.setter
    def node(self, state: str) -> None:
        self.existing_node(state=state)

    def existing_node(self, **fields: str) -> None:
        """Makes a node that another start created."""
        (self.folder / 'node').write_text(json.dumps({**OTHER, **fields}))

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

    def log(self, describe: bool = False) -> List[List[str]]:
        """The commands that ran, in order; those that only ask for a node or machine if `describe` is true."""
        calls = [unmarked(json.loads(line)) for line in text_of(str(self.folder / 'log')).splitlines()]
        return [call for call in calls if describe or 'describe' not in call]

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
