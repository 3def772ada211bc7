"""A folder in which `run_tpu.sh` runs with stubs: `gcloud` keeps a TPU in a file, `run` ends as the test specifies."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any, List, Optional, Sequence

from tests.support.processes import text_of, wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
# A program that calls the stub; Python keeps the stub compiled.
STUB = """#!{python} -IS
import sys
sys.path.append({tests!r})
sys.argv[0] = {name!r}
import stub
stub.main({world!r})
"""
TOOLS = ('awk', 'cat', 'chmod', 'date', 'env', 'grep', 'gzip', 'mktemp', 'rm', 'sed', 'setsid', 'tail', 'tar', 'tee')
LIMIT = 120  # Seconds that a test waits; far more than a busy machine needs.
NODE = ['node', '--project=project', '--zone=us-central1-b']
LIST_BUCKET = ['gcloud', 'storage', 'ls', 'gs://bucket']
MARK = '--description=MARK'  # In place of the description, which differs for each start.
FLAGS = ['--num_shards=8', '--data_dir=gs://bucket/imagenet', '--model_dir=gs://bucket/inception_v3']
FLAGS += ['--export_dir=gs://bucket/inception_v3/export']
PAUSE = ['sleep', '0']
NOT_FOUND = "ERROR: (gcloud) NOT_FOUND: Resource 'projects/project/locations/us-central1-b/nodes/node' was not found\n"
NAMES = ('preflight', 'create', 'delete', 'ls')
SILENT = {'code': 1}  # A failure without a message.
OTHER = {'state': 'READY', 'acceleratorType': 'v2-8', 'description': ''}

# The commands of a run on a TPU VM. The program runs there; the commands that take it there and fetch its log are in
# `World.log(every=True)` only.
VM = ['gcloud', 'compute', 'tpus', 'tpu-vm']
CREATE = [*VM, 'create', *NODE, '--network=default', MARK, '--accelerator-type=v2-8']
CREATE += ['--version=tpu-vm-tf-2.15.1-se']
DELETE = [*VM, 'delete', *NODE, '--quiet']
PREFLIGHT = ['./run', '--tf=2.15', 'inception-v3', 'preflight', '--topology=v2-8', '--tpu=local', *FLAGS]
TRAIN = ['./run', '--tf=image', 'python', '-m', 'inception_v3.main', '--tpu=local', *FLAGS]
CHECKS = [LIST_BUCKET, PREFLIGHT]

QUEUE = ['gcloud', 'compute', 'tpus', 'queued-resources']
QUEUE_CREATE = [*QUEUE, 'create', *NODE, '--network=default', MARK, '--node-id=node', '--accelerator-type=v2-8']
QUEUE_CREATE += ['--runtime-version=tpu-vm-tf-2.15.1-se', '--spot']
QUEUE_DELETE = [*QUEUE, 'delete', *NODE, '--force', '--quiet']
BROKEN = {'code': 1, 'says': 'ERROR: [/usr/bin/ssh] exited with return code [255].\n'}

# For a TPU node, the program runs on this machine.
CLUSTER = ['--tpu=node', '--tpu_zone=us-central1-b', '--gcp_project=project']
NODE_CREATE = [*VM[:3], *CREATE[4:-1], '--version=1.15']
NODE_DELETE = [*VM[:3], *DELETE[4:]]
NODE_PREFLIGHT = ['./run', '--tf=1.15', 'inception-v3', 'preflight', '--topology=v2-8', *CLUSTER, *FLAGS]
NODE_TRAIN = ['./run', '--tf=1.15', 'python', '-m', 'inception_v3.main', *CLUSTER, *FLAGS]


def unmarked(call: Sequence[str]) -> List[str]:
    """Returns a command with MARK in place of the description, which differs for each start."""
    return [re.sub(r'run_tpu\.sh-\w+-\d+', 'MARK', word) for word in call]


def program_files() -> List[str]:
    """The files and folders that the script copies to a TPU VM."""
    (names,) = re.findall(r"^files='(.*?)'", (ROOT / 'run_tpu' / 'vm.sh').read_text(), re.M | re.S)
    return names.split()


class World:
    """A folder with the script, and a PATH with only stubs and a few tools."""

    def __init__(self, folder: pathlib.Path, architecture: str = 'vm'):
        self.folder = folder
        self.architecture = architecture
        is_vm = architecture == 'vm'
        self.create, self.delete = (CREATE, DELETE) if is_vm else (NODE_CREATE, NODE_DELETE)
        self.train, self.checks = (TRAIN, CHECKS) if is_vm else (NODE_TRAIN, [LIST_BUCKET, NODE_PREFLIGHT])
        self.bin = folder / 'bin'
        self.bin.mkdir()
        self.temporary = folder / 'tmp'
        self.temporary.mkdir()
        shutil.copy(str(ROOT / 'run_tpu.sh'), str(folder))
        shutil.copytree(str(ROOT / 'run_tpu'), str(folder / 'run_tpu'))
        # The files of the program that are copied to a TPU VM, all empty.
        for name in program_files():
            if not (folder / name).exists():
                (folder / name).touch()
        (folder / 'program').write_text(' '.join(program_files()))
        for tool in (*TOOLS, 'timeout'):
            (self.bin / tool).symlink_to(str(shutil.which(tool)))
        stubs = [(self.bin / name, name) for name in ('gcloud', 'sleep', 'apt-get', 'shutdown')]
        for path, name in (*stubs, (folder / 'run', './run')):
            tests = str(pathlib.Path(__file__).parent)
            path.write_text(STUB.format(python=sys.executable, tests=tests, name=name, world=str(folder)))
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
        """Sets the actions of the next calls of each kind."""
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
        self.existing('node', **{'tensorflowVersion': '1.15', 'runtimeVersion': 'tpu-vm-tf-2.15.1-se', **fields})
        (self.folder / 'vm').mkdir(exist_ok=True)

    def existing(self, place: str, **fields: Any) -> None:
        """Makes a resource of another start."""
        (self.folder / place).write_text(json.dumps({**OTHER, **fields}))

    def start(
        self, *arguments: str, shell: Sequence[str] = ('/bin/sh',), output: Optional[int] = None, **environment: Any
    ) -> 'subprocess.Popen[bytes]':
        """Starts the script, which writes to `output`; by default, to the files that `call` and `errors` read."""
        with open(str(self.folder / 'stdout'), 'wb') as stdout, open(str(self.folder / 'stderr'), 'wb') as stderr:
            return subprocess.Popen(
                [*shell, './run_tpu.sh', *([] if self.architecture == 'vm' else ['--architecture=node']), *arguments],
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

    def log(self, every: bool = False) -> List[List[str]]:
        """The commands that ran, in order; `every` includes queries about a TPU, copies and connections to it."""
        calls = [unmarked(json.loads(line)) for line in text_of(str(self.folder / 'log')).splitlines()]
        return [call for call in calls if every or not {'describe', 'list', 'scp', 'ssh'} & set(call)]

    @property
    def course(self) -> str:
        """The names of the commands that ran, in order, with `queue_` for queued resources; other commands in full."""

        def name_of(call: Sequence[str]) -> str:
            words = [('sleep', 'pause'), ('main', 'train'), ('cat', 'checkpoint'), *((each, each) for each in NAMES)]
            names = (name for word, name in words if any(part.endswith(word) for part in call[:6]))
            found = next(names, ' '.join(call))
            return f'queue_{found}' if 'queued-resources' in call else found

        return ' '.join(map(name_of, self.log()))

    def forget(self) -> None:
        """Empties the log, and makes the next waiting command wait again."""
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
        """Lets the waiting command continue."""
        (self.folder / 'go on').touch()
