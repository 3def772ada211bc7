"""Puts small changes into the program, one at a time, and lists those that no test of the default tier notices.

    ./run --tf=2.21 python -m tests.mutation --sample=120

cosmic-ray makes the mutants (`mutants.py`), and `line_map.py` finds the tests that execute each of them. The tests of
the module's own file run first, until one fails. This process imports TensorFlow once; each mutant is a fork of it,
which imports the program from a copy of the last commit. The folder of a sample keeps the map of the tests, and a
journal: the same command resumes. After a commit that changes only tests, it maps the changed tests again, and repeats
the survivors for which other tests run.

`equal.txt` lists the mutants that change nothing, each with the reason.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback
import warnings
from fnmatch import fnmatch
from typing import Any, Callable, Dict, List, Set, Tuple

from tests.mutation.choice import choose, is_significantly_below, table

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGETS = (
    'inception_v3/*.py',
    'preprocessing/*.py',
    *(f'data/{name}' for name in ('order.py', 'records.py', 'tfrecord*.py', 'tar/*.py', 'sources.py', 'checks.py')),
    *(f'console/{name}.py' for name in ('outputs', 'paths', 'program')),
    'tools/studies/report/statistics.py',
    'tools/fid/scores.py',
    'tools/paired.py',
    'tools/evaluate_report/predictions.py',
    'tools/weights/*.py',
)
# The profiler: its results are judged by eye.
LEFT_OUT = ('*/hooks/profiler.py', '*/run/profile.py')
# Tests of parts that are not mutated: they would cost half of the map. A mutant that only they notice counts as a
# survivor. test_pages.py is mapped: the page of the flags shows the values of the configuration and of the presets.
NOT_MAPPED = (
    *(f'tests/{name}/*' for name in ('examples', 'fuzz', 'run_tpu')),
    'tests/docs/test_[!p]*',
    *(f'tests/tools/{name}/*' for name in ('benchmarks', 'datasets', 'export', 'features', 'plan', 'predict')),
    *(f'tests/tools/{name}/*' for name in ('preflight', 'provenance', 'studies/[!r]*')),
    'tests/tools/studies/test_*',
)
WANTED = 0.95  # The least share of noticed mutants, among those that change something.
CHUNK = 10  # Files of tests that one process maps.


def git(*arguments: str) -> str:
    """The output of a git command."""
    return subprocess.run(['git', *arguments], cwd=str(ROOT), check=True, stdout=subprocess.PIPE, text=True).stdout


def digest(*paths: pathlib.Path) -> str:
    """A digest of the content of files."""
    return hashlib.sha256(b''.join(path.read_bytes() for path in paths)).hexdigest()[:16]


def tool() -> str:
    """The Python of the environment of cosmic-ray, which is made if its lock has changed."""
    venv, lock = ROOT / '.venv-mutation', HERE / 'requirements.lock'
    installed, python, uv = venv / 'installed.lock', venv / 'bin' / 'python', ROOT / '.tools' / 'bin' / 'uv'
    if not installed.exists() or installed.read_bytes() != lock.read_bytes():
        shutil.rmtree(str(venv), ignore_errors=True)
        subprocess.run([str(uv), 'venv', '--quiet', '--python', sys.executable, str(venv)], check=True)
        sync = [str(uv), 'pip', 'sync', '--quiet', '--python', str(python), '--require-hashes', str(lock)]
        subprocess.run(sync, check=True)
        shutil.copy(str(lock), str(installed))
    return str(python)


def targets(tree: pathlib.Path) -> List[str]:
    """The files of the program that are mutated."""
    files = sorted(str(path.relative_to(tree)) for path in tree.rglob('*.py'))
    return [f for f in files if any(fnmatch(f, t) for t in TARGETS) and not any(fnmatch(f, t) for t in LEFT_OUT)]


def draw(tree: pathlib.Path, seed: int, count: int) -> Tuple[Dict[str, int], List[Dict[str, Any]]]:
    """The number of places in each file, and a sample of mutants."""
    command = [tool(), str(HERE / 'mutants.py'), str(seed), str(count), *targets(tree)]
    first, *lines = subprocess.run(
        command, cwd=str(tree), check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    return json.loads(first)['of'], [{**mutant, 'key': key_of(mutant)} for mutant in map(json.loads, lines)]


def key_of(mutant: Dict[str, Any]) -> str:
    """The name of a mutant: it stays the same when lines are added before it."""
    return f'{mutant["file"]}: {mutant["before"].strip()} -> {mutant["after"].strip()}'


def in_fork(work: Callable[[], Any], log: pathlib.Path, limit: float) -> Any:
    """Runs a function in a fork of this process, whose output goes to a file.

    Returns:
      The result, by way of JSON; None if the process ends otherwise, or if it takes more seconds than the limit.
    """
    answer = log.with_suffix('.json')
    answer.unlink(missing_ok=True)  # type: ignore[call-arg]
    with warnings.catch_warnings():
        # TensorFlow's threads are idle: this process gives them no work.
        warnings.filterwarnings('ignore', message='.*multi-threaded', category=DeprecationWarning)
        child = os.fork()
    if not child:
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            output = os.open(str(log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(output, 1)
            os.dup2(output, 2)
            result = work()
            answer.write_text(json.dumps(result))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    end, done = time.monotonic() + limit, 0
    try:
        while not done and time.monotonic() < end:
            done, _ = os.waitpid(child, os.WNOHANG)
            time.sleep(0.02)
    finally:
        # Ends processes that a test has left, too. A fork that has just begun leads no group yet.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return json.loads(answer.read_text()) if done and answer.exists() else None


def run_pytest(arguments: List[str], plugin: Any, folder: pathlib.Path) -> int:
    """Runs pytest in this process and returns its exit code."""
    import pytest

    temporary = folder / 'tmp'
    options = ['-n', '0', '-p', 'no:cacheprovider', '--tb=line', f'--basetemp={temporary}']
    try:
        return int(pytest.main([*options, *arguments], [plugin]))
    finally:
        shutil.rmtree(str(temporary), ignore_errors=True)


def map_tests(tree: pathlib.Path, folder: pathlib.Path, files: Set[str]) -> Dict[str, Dict[str, Any]]:
    """The entries of `LineMap` of all tests; entries of unchanged files are read from the folder."""
    maps = folder / 'map'
    maps.mkdir(exist_ok=True)
    paths = sorted((tree / 'tests').rglob('test_*.py'))
    paths = [path for path in paths if not any(fnmatch(str(path.relative_to(tree)), each) for each in NOT_MAPPED)]
    kept = {path: maps / f'{digest(path)}-{path.stem}.json' for path in paths}
    missing = [path for path in paths if not kept[path].exists()]
    for start in range(0, len(missing), CHUNK):
        chunk = missing[start : start + CHUNK]

        def work(chunk: List[pathlib.Path] = chunk) -> Any:
            from tests.mutation.line_map import LineMap

            plugin = LineMap(tree, files)
            return run_pytest([str(path) for path in chunk], plugin, folder), plugin.tests

        began = time.monotonic()
        code, tests = in_fork(work, folder / 'map.log', 1800) or (None, {})
        if code is None:
            # If they were kept as mapped, these files would have no tests.
            sys.exit(f'not mapped: {chunk[0]} and the {len(chunk) - 1} after it; see {folder}/map.log')
        print(f'mapped {start + len(chunk)} of {len(missing)} files in {time.monotonic() - began:.0f} s', flush=True)
        for path in chunk:
            name = str(path.relative_to(tree))
            mine = {test: entry for test, entry in tests.items() if test.split('::')[0] == name}
            kept[path].write_text(json.dumps(mine))
    entries = {}
    for path in paths:
        for test, entry in json.loads(kept[path].read_text()).items():
            entries[test] = {**entry, 'digest': kept[path].name}
    return entries


class Chosen:
    """A pytest plugin that runs some tests in a given order, and keeps the name of the one that fails."""

    def __init__(self, tests: List[str]):
        self._order = {name: number for number, name in enumerate(tests)}
        self.failed = ''

    def pytest_collection_modifyitems(self, items: List[Any]) -> None:
        """Puts the tests into their order and leaves out all others."""
        items[:] = sorted((i for i in items if i.nodeid in self._order), key=lambda item: self._order[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keeps the name of the test that fails."""
        if report.failed:
            self.failed = self.failed or report.nodeid


def try_mutant(
    tree: pathlib.Path, folder: pathlib.Path, mutant: Dict[str, Any], tests: List[str], limit: float
) -> Tuple[str, str]:
    """Runs tests on a mutant; returns `noticed`, `survived`, or `stopped` at the limit, and the test that fails."""
    path = tree / mutant['file']
    source, times = path.read_bytes(), path.stat()

    def work() -> Any:
        plugin = Chosen(tests)
        sys.dont_write_bytecode = True
        files = list(dict.fromkeys(test.split('::')[0] for test in tests))
        return run_pytest(['-x', *files], plugin, folder), plugin.failed

    try:
        path.write_text(mutant['source'])
        # A time that differs from that of the compiled module.
        os.utime(str(path), (1e9, 1e9))
        began = time.monotonic()
        answer = in_fork(work, folder / 'mutant.log', limit)
        took = time.monotonic() - began
    finally:
        path.write_bytes(source)
        os.utime(str(path), ns=(times.st_atime_ns, times.st_mtime_ns))
    if answer is None:
        return ('stopped', '') if took >= limit else ('noticed', 'the process crashes')
    code, failed = answer
    return ('survived', '') if code == 0 else ('noticed', failed or 'the program cannot be imported')


def equal_mutants() -> Dict[str, str]:
    """The reasons why mutants change nothing, by key: in `equal.txt`, a reason follows its mutant, indented."""
    reasons: Dict[str, str] = {}
    key = ''
    for line in (HERE / 'equal.txt').read_text().splitlines():
        if line.startswith(' '):
            reasons[key] = f'{reasons[key]} {line.strip()}'.strip()
        elif line and not line.startswith('#'):
            key = line
            reasons[key] = ''
    return reasons


def read_journal(path: pathlib.Path) -> Dict[str, Dict[str, Any]]:
    """The last result of each mutant, by key."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {result['key']: result for result in map(json.loads, lines)}


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser('python -m tests.mutation', description=__doc__.split('\n')[0])
    parser.add_argument(
        '--sample', type=int, default=120, help='the number of mutants; a larger one contains the smaller'
    )
    parser.add_argument('--seed', type=int, default=1, help='the seed that draws them')
    parser.add_argument(
        '--budget', type=float, default=60, help='the CPU-seconds of tests that run at most for a mutant'
    )
    parser.add_argument('--folder', default='runs/mutation', help='the folder of the journal')
    parser.add_argument('--minutes', type=float, default=0, help='begin no mutant after so many minutes; 0: no limit')
    return parser.parse_args()


def prepare(folder: pathlib.Path) -> pathlib.Path:
    """Copies the last commit into the folder, because an interrupted sample leaves a mutant there."""
    tree = folder / 'tree'
    shutil.rmtree(str(tree), ignore_errors=True)
    tree.mkdir(parents=True)
    archive = subprocess.run(['git', 'archive', 'HEAD'], cwd=str(ROOT), check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(['tar', '-x', '-C', str(tree)], input=archive, check=True)
    product = digest(*(tree / file for file in targets(tree)))
    known = folder / 'product'
    if known.exists() and known.read_text() != product:
        sys.exit(f'{folder}: a sample of other code: choose another --folder, or delete this one')
    known.write_text(product)
    return tree


def main() -> None:
    """Prepares a sample, runs or resumes it, and prints its table and its survivors."""
    arguments = parse_arguments()
    # SIGTERM must leave no process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    began = time.monotonic()
    folder = pathlib.Path(arguments.folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    tree = prepare(folder)
    commit = git('rev-parse', '--short', 'HEAD').strip()
    places, mutants = draw(tree, arguments.seed, arguments.sample)
    print(f'{len(mutants)} of {sum(places.values())} places, drawn with the seed {arguments.seed}; commit {commit}')
    # From here on, `tests` and the program come from the tree.
    os.chdir(str(tree))
    os.environ.update(PYTHONPATH=str(tree))
    sys.path[:] = [str(tree), *(path for path in sys.path if path not in ('', str(ROOT)))]
    for name in [name for name in sys.modules if name.split('.')[0] in ('tests', 'compat')]:
        del sys.modules[name]
    load_packages()
    tests = map_tests(tree, folder, set(targets(tree)))
    print(f'{len(tests)} tests', flush=True)
    journal = folder / 'journal.jsonl'
    results = read_journal(journal)
    for mutant in mutants:
        choice = choose(tests, mutant, arguments.budget)
        run = hashlib.sha256(json.dumps([(t, tests[t]['digest']) for t in choice.tests]).encode()).hexdigest()
        old = results.get(mutant['key'])
        if old and (old['result'] in ('noticed', 'stopped') or old['run'] == run):
            continue
        if arguments.minutes and time.monotonic() - began > 60 * arguments.minutes:
            break
        start = time.monotonic()
        result, test = 'no test', ''
        if choice.tests:
            result, test = try_mutant(tree, folder, mutant, choice.tests, 60 + 6 * choice.seconds)
        entry = {
            **{name: mutant[name] for name in ('key', 'file', 'line', 'operator', 'before', 'after')},
            **{'result': result, 'test': test, 'ran': len(choice.tests), 'left': choice.left},
            **{'run': run, 'commit': commit},
            'seconds': round(time.monotonic() - start, 1),
        }
        results[mutant['key']] = entry
        with open(str(journal), 'a') as file:
            file.write(json.dumps(entry) + '\n')
        print(f'{result}: {mutant["key"]} ({entry["seconds"]} s) {test}', flush=True)
    those = [results[mutant['key']] for mutant in mutants if mutant['key'] in results]
    equal = equal_mutants()
    print(table(those, equal, places))
    for each in those:
        if each['result'] in ('survived', 'no test') and each['key'] not in equal:
            print(f'\n{each["result"]}, {each["ran"]} tests, {each["left"]} left: {each["file"]}:{each["line"]}')
            print(f'-{each["before"]}\n+{each["after"]}')
    if is_significantly_below(WANTED, those, equal):
        sys.exit(f'significantly fewer than {WANTED:.0%} of the mutants that change something are noticed')


def load_packages() -> None:
    """Imports the packages that the tests need besides the program, once for all forks."""
    from compat import tf

    del tf
    for name in ('pytest', 'hypothesis', 'numpy', 'scipy.stats', 'skimage.data', 'sklearn.datasets', 'PIL.Image'):
        __import__(name)


if __name__ == '__main__':
    main()
