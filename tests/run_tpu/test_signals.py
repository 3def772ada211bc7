"""Tests of `run_tpu.sh` while it runs: signals, lost terminals and folders, and programs that continue without it."""

import os
import shlex
import shutil
import signal
import subprocess
from typing import Any

import pytest

from tests.run_tpu.test_courses import FOREIGN
from tests.run_tpu.world import BROKEN, LIMIT, NODE, NOT_FOUND, OTHER, SILENT, VM, World
from tests.support.processes import text_of, wait_for

pytestmark = pytest.mark.program
WAITS = {'waits': True}
ENDED = 'ls preflight create train delete'


def end(world: World, script: 'subprocess.Popen[bytes]') -> Any:
    """The exit code of a script that ends, and the state of its TPU."""
    return script.wait(timeout=LIMIT), world.node


def start(world: World, program: Any = None, shell: str = '/bin/sh', **environment: Any) -> 'subprocess.Popen[bytes]':
    """Starts the script, and waits until its program, or another command, waits."""
    if program is not None:
        world.script(main=[program])
    script = world.start('--create', shell=shell.split(), **environment)
    world.waiting()
    return script


NUMBERS = [
    (signal.SIGTERM, 75),
    *((number, 128 + number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)),
]


@pytest.mark.parametrize(('number', 'code'), NUMBERS)
def test_signal_in_training__stops_it_and_deletes_the_tpu(world: World, number: signal.Signals, code: int) -> None:
    for shell in ('/bin/sh', '/bin/bash') if number == signal.SIGINT else ('/bin/sh',):
        script = start(world, WAITS, shell)
        program = int(text_of(str(world.folder / 'waiting')))
        if shell == '/bin/bash':  # A terminal sends Ctrl-C to the whole process group.
            os.killpg(script.pid, number)
        else:
            script.send_signal(number)
        assert end(world, script) == (code, None)
        assert world.course == ENDED
        with pytest.raises(ProcessLookupError):
            os.kill(program, 0)
        world.forget()


@pytest.mark.parametrize(('shell', 'number'), [('/bin/sh', signal.SIGINT), ('/bin/bash', signal.SIGHUP)])
def test_signal_in_creation__waits_and_deletes_the_tpu(world: World, shell: str, number: signal.Signals) -> None:
    world.script(create=[WAITS])
    script = start(world, None, shell)
    os.killpg(script.pid, number)
    world.message(script, 'waiting for gcloud')
    world.go_on()
    assert end(world, script) == (128 + number, None)
    assert (world.folder / 'waiting').read_text() == 'done'
    assert world.course == 'ls preflight create delete'


@pytest.mark.parametrize(('shell', 'kind'), [('/bin/sh', 'main'), ('/bin/bash', 'create')])
def test_second_signal__does_not_wait(world: World, shell: str, kind: str) -> None:
    world.script(**{kind: [{**WAITS, 'ignores': True}]})
    script = start(world, None, shell)
    script.send_signal(signal.SIGINT)
    world.message(script, 'waiting for')
    script.send_signal(signal.SIGINT)
    assert end(world, script) == (130, None) and world.course.endswith(' delete')


def test_second_signal__does_not_stop_the_deletion(world: World) -> None:
    world.script(main=[{'code': 2}], delete=[WAITS])
    script = start(world)
    os.killpg(script.pid, signal.SIGINT)
    os.killpg(script.pid, signal.SIGTERM)
    world.go_on()
    assert end(world, script) == (2, None) and world.course.endswith(' delete')


@pytest.mark.parametrize('shell', ['/bin/sh', '/bin/bash', f'{shutil.which("nohup")} /bin/sh'])
def test_ctrl_z_and_nohup__let_the_run_continue(world: World, shell: str) -> None:
    script = start(world, WAITS, shell)
    os.killpg(script.pid, signal.SIGHUP) if 'nohup' in shell else script.send_signal(signal.SIGTSTP)
    world.go_on()
    assert end(world, script) == (0, None) and world.course == ENDED


def test_closed_output__ends_the_run_and_deletes_the_tpu(world: World) -> None:
    world.script(main=[{'waits': True, 'code': 1, 'node': {'state': 'PREEMPTED'}}])
    reader, writer = os.pipe()
    script = world.start('--create', output=writer)
    os.close(writer)
    world.waiting()
    os.close(reader)
    world.go_on()
    assert end(world, script) == (128 + signal.SIGPIPE, None) and world.course == ENDED


def test_hanging_program__is_killed_and_the_tpu_deleted(world: World) -> None:
    script = start(world, {**WAITS, 'ignores': True}, TIMEOUT_SECONDS='3')
    script.send_signal(signal.SIGTERM)
    assert end(world, script) == (75, None) and world.course == ENDED


def test_tpu_that_appears_after_the_end__is_announced(world: World) -> None:
    missing = {'code': 1, 'says': NOT_FOUND}
    world.script(
        create=[{**WAITS, 'ignores': True}], describe=[{}, missing, missing, missing], list=[{}, *[{'node': {}}] * 3]
    )
    script = start(world)
    script.send_signal(signal.SIGINT)
    world.message(script, 'waiting for gcloud')
    script.send_signal(signal.SIGINT)
    assert end(world, script) == (130, 'CREATING')
    *_, message, command = world.errors().splitlines()
    assert 'IT MAY STILL APPEAR, AND COSTS MONEY' in message
    assert shlex.split(command) == [*VM, 'describe', *NODE]


def test_tpu_of_another_start__is_kept_after_a_signal(world: World) -> None:
    script = start(world, {**WAITS, 'node': OTHER})
    world.existing_node()
    script.send_signal(signal.SIGQUIT)
    assert end(world, script) == (2, 'READY')
    assert world.course == 'ls preflight create train' + ' pause' * 9


def test_tpu_that_existed_before__is_not_deleted(world: World) -> None:
    world.node = 'READY'
    world.script(describe=[SILENT], create=[{'code': 1, **WAITS}])
    script = start(world)
    script.send_signal(signal.SIGINT)
    world.message(script, 'waiting for gcloud')
    world.go_on()
    assert end(world, script) == (130, 'READY')
    assert world.course == 'ls preflight create' and 'this start did not make it' in world.errors()


def test_tpu_not_ready_after_its_creation__is_waited_for(world: World) -> None:
    world.script(create=[{'node': {'state': 'CREATING'}}])
    script = world.start('--create', RESTART_SECONDS='1')
    wait_for(lambda: ['sleep', '1'] in world.log(), LIMIT)
    script.send_signal(signal.SIGTERM)
    assert end(world, script) == (75, None) and 'train' not in world.course


@pytest.mark.parametrize('unwritable', [False, True])
def test_lost_temporary_folder__does_not_keep_the_tpu(world: World, unwritable: bool) -> None:
    script = start(world, WAITS, TIMEOUT_SECONDS='8')
    if unwritable:
        paths = [*world.temporary.glob('*/*')]
        assert paths
        for path in paths:
            path.unlink()
            path.mkdir()  # No file can be written there.
    else:
        shutil.rmtree(str(world.temporary))
    world.go_on()
    assert end(world, script) == (0, None)


def test_running_program__is_neither_ended_nor_restarted(world: World) -> None:
    answer = FOREIGN['other TPU']
    world.script(main=[{'prints': 'step 1', **WAITS}], log=[{}, answer], describe=[{}, {}, answer])
    script = start(world, TIMEOUT_SECONDS='8')
    world.message(script, answer['says'].strip())
    wait_for(lambda: 'pause' in world.course, LIMIT)
    world.go_on()
    assert end(world, script) == (0, None)
    assert world.course == 'ls preflight create train pause delete'
    assert text_of(str(world.folder / 'stdout')) == 'step 1\n'


def test_program_of_this_start_that_still_runs__is_followed(world: World) -> None:
    # Google Cloud seems to stop the TPU VM, but then finds it, with its program.
    main = {'prints': 'step 1', **WAITS, 'says': 'step 2\n'}
    world.script(main=[main], log=[{}, BROKEN], describe=[{}, {}, {'prints': 'STOPPED'}])
    script = start(world, TIMEOUT_SECONDS='8')
    world.message(script, 'restart 1 of')
    world.message(script, 'is running the program on this TPU VM')
    world.go_on()
    assert end(world, script) == (0, None)
    assert text_of(str(world.folder / 'stdout')) == 'step 1\nstep 2\n'
    assert world.course == 'ls preflight create train checkpoint pause delete'
