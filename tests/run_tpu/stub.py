"""A stub of `gcloud`, `sleep` and `./run`, which keeps TPUs in files. The programs that `world.py` makes call `main`.

It logs its call, and then follows the next entry of `script.json` for this kind of call: it sets the TPU's state, saves
a checkpoint, prints, waits until the test continues, or fails. Without an entry, it acts like the real command. A TPU
VM is the folder `vm`: commands sent by SSH run there.

A test starts dozens of stubs. Therefore they import no module with many imports, such as json, contextlib and typing.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from _json import encode_basestring_ascii

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

LIMIT = 120  # Seconds.
CALL: List[str] = sys.argv
VERBS = ('config', 'rsync', 'storage', 'scp', 'ssh', 'describe', 'create', 'delete', 'list', 'preflight', 'main')
PATHS = {
    'node': 'projects/project/locations/us-central1-b/nodes/node',
    'queue': 'projects/project/locations/us-central1-b/queuedResources/node',
    'instance': 'projects/project/zones/us-central1-b/instances/node',
}
BROKEN = 'ERROR: (gcloud.compute.tpus.tpu-vm.ssh) [/usr/bin/ssh] exited with return code [255].\n'


def read(name: str) -> str:
    with open(name) as file:
        return file.read()


def write(name: str, text: str) -> None:
    # Several stubs run at a time.
    new = f'{name}.{os.getpid()}'
    with open(new, 'w') as file:
        file.write(text)
    os.rename(new, name)


def parse(text: str) -> Any:
    """The value of JSON, which is a Python expression except for three names."""
    return eval(text, {'true': True, 'false': False, 'null': None})


def to_json(value: Any) -> str:
    if isinstance(value, dict):
        return '{' + ', '.join(f'{to_json(key)}: {to_json(each)}' for key, each in value.items()) + '}'
    if isinstance(value, list):
        return '[' + ', '.join(map(to_json, value)) + ']'
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    return 'null' if value is None else str(value).lower()


def find_kind() -> str:
    """The name of the call in `script.json`."""
    words = CALL[:5]
    if CALL[-1].endswith('/checkpoint'):
        return 'checkpoint'
    verb = [verb for verb in VERBS if any(verb in word for word in words)][:1]
    if 'instances' in words:
        return f'instance_{verb[0]}'
    if verb == ['ssh']:
        return CALL[-1].split('on_vm.sh ')[1].split()[0]
    if 'queued-resources' in words:
        return f'queue_{verb[0]}'
    return verb[0] if verb else ''


def new_resource() -> Dict[str, str]:
    given = dict(word[2:].split('=', 1) for word in CALL if word.startswith('--') and '=' in word)
    version = given.get('version', given.get('runtime-version', ''))
    resource = {'acceleratorType': given.get('accelerator-type', ''), 'state': 'CREATING'}
    return {**resource, 'description': given['description'], 'tensorflowVersion': version, 'runtimeVersion': version}


def lose_vm() -> None:
    """Ends the processes on the TPU VM, and removes its disk."""
    for run in os.listdir('vm/.run_tpu') if os.path.isdir('vm/.run_tpu') else []:
        for name in ('supervisor', 'program'):
            if os.path.exists(f'vm/.run_tpu/{run}/{name}'):
                try:  # noqa: SIM105  # See above: contextlib.
                    os.kill(int(read(f'vm/.run_tpu/{run}/{name}').split()[0]), 9)
                except ProcessLookupError:
                    pass
    if os.path.exists('vm'):
        os.rename('vm', f'vm.{time.time()}')


def place_of(kind: str) -> str:
    return kind.split('_')[0] if '_' in kind else 'node'


def update(place: str, fields: Dict[str, str]) -> None:
    write(place, to_json({**(parse(read(place)) if os.path.exists(place) else {}), **fields}))


def fill(kind: str) -> None:
    """Acts like the real command."""
    place = place_of(kind)
    if kind in ('create', 'queue_create'):
        lose_vm()
        os.mkdir('vm')
        update('node', {'state': 'READY'})
        if place == 'queue':
            update('queue', {'state': 'ACTIVE'})
    elif kind.endswith(('delete', 'describe')) and not os.path.exists(place):
        sys.exit(f"ERROR: (gcloud) NOT_FOUND: Resource '{PATHS[place]}' was not found")
    elif kind.endswith('list'):
        # The zone has other TPUs, too.
        print(f'{PATHS[place]}-2', f'{PATHS[place][:-4]}another-node', 'another-node', sep='\n')
        if os.path.exists(place):
            print(PATHS[place])
    elif kind.endswith('delete'):
        os.remove(place)
        if place == 'queue' and os.path.exists('node'):
            os.remove('node')
        if place != 'instance':
            lose_vm()
    elif kind.endswith('describe'):
        tpu = parse(read(place))
        fields = CALL[-1].split('(')[1].strip(')').split(',')
        print(*[tpu.get('state' if 'stat' in field else field.split('.')[-1], '') for field in fields], sep='\t')
    elif kind == 'checkpoint':
        print(read('checkpoint'))


def copy(here: str, kind: str) -> None:
    """Copies files like `gcloud storage rsync` to a machine, or like `scp` to the TPU VM."""
    import shutil

    if kind == 'scp':
        archive, target = CALL[5:7]
        shutil.copy(archive, os.path.join('vm', target.split(':')[1]))
    elif CALL[-1] == '.':
        for name in ('run_tpu.sh', *read('program').split()):
            if os.path.isdir(name):
                shutil.copytree(name, f'{here}/{name}')
            else:
                shutil.copy(name, here)


def connect(todo: Dict[str, Any]) -> None:
    """Runs the command of an SSH connection on the TPU VM.

    `cut` breaks the connection after that many characters of output; `again` then repeats the command, as gcloud does.
    """
    (command,) = [word.split('=', 1)[1] for word in CALL if word.startswith('--command=')]
    state = parse(read('node'))['state'] if os.path.exists('node') else 'NOT_FOUND'
    if state != 'READY':
        sys.exit(f'ERROR: (gcloud.compute.tpus.tpu-vm.ssh) This TPU has terminal state "{state}"')
    os.chdir('vm')
    environment = {'PATH': '/usr/bin:/bin', 'HOME': os.getcwd()}
    if 'cut' in todo:
        import subprocess

        output = subprocess.run(['sh', '-c', command], env=environment, stdout=subprocess.PIPE, text=True).stdout
        sys.stdout.write(output[: todo['cut']])
        sys.stdout.flush()
        if not todo.get('again'):
            sys.exit(BROKEN)
    os.execve('/bin/sh', ['sh', '-c', command], environment)


def save_checkpoint(todo: Dict[str, Any]) -> None:
    """Rewrites the file at every start of the program, even without a new checkpoint."""
    old = read('checkpoint').split('"')[1] if os.path.exists('checkpoint') else 'model.ckpt-0'
    stamp = f'last_preserved_timestamp: {time.time()}'
    write('checkpoint', f'model_checkpoint_path: "{todo.get("saves", old)}"\n{stamp}\n')


def act(todo: Dict[str, Any], kind: str, here: str) -> None:
    for place in ('node', place_of(kind)) if kind in ('create', 'queue_create') else (place_of(kind),):
        if kind.endswith('create') and not os.path.exists(place):
            write(place, to_json(new_resource()))
    if todo.get('ignores'):
        import signal

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
    if 'prints' in todo:
        print(todo['prints'], flush=True)
    if todo.get('waits'):
        write('waiting', str(os.getpid()))
        end = time.time() + LIMIT
        while not os.path.exists('go on') and time.time() < end:
            time.sleep(0.02)
        write('waiting', 'done')
    sys.stderr.write(todo.get('says', ''))
    if kind == 'main':
        save_checkpoint(todo)
    if todo.get('node') == 'gone':
        os.remove('node')
    elif todo.get('node'):
        update('node', todo['node'])
    if 'queue' in todo:
        update('queue', todo['queue'])
    if not todo.get('code'):
        if 'node' not in todo and 'queue' not in todo:
            fill(kind)
        if kind in ('scp', 'rsync'):
            copy(here, kind)
        if kind in ('start', 'log', 'stop'):
            connect(todo)
    sys.exit(todo.get('code', 0))


def main(world: str) -> None:
    """Performs the call in `sys.argv`, in the folder of a `World`."""
    here = os.getcwd()
    os.chdir(world)
    with open('log', 'a') as log:
        log.write(to_json(CALL) + '\n')
    kind = find_kind()
    with open('lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = parse(read('script.json'))
        todo = script[kind].pop(0) if script.get(kind) else {}
        write('script.json', to_json(script))
    act(todo, kind, here)
