"""Tests that imports point in one direction: down the tables below, in which every module has a place."""

import ast
import functools
import pathlib
import re
from typing import Dict, FrozenSet, Iterator, List, Set, Tuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Both tables read from top to bottom. An entry is a module, or a package with all modules below it. A module may import
# from lower rows and from its own entry, but not from another entry in its row.
PACKAGES = (
    ('docs', 'examples', 'inception_v3_tpu'),
    ('tools',),
    ('inception_v3',),
    ('data',),
    ('preprocessing',),
    ('console',),
    ('compat',),
)

# The modules and rooms of the package inception_v3.
LAYERS = (
    ('main',),
    ('train_and_evaluate',),
    ('run',),
    ('data_set', 'estimator', 'fitting'),
    ('local_estimator',),
    ('flags', 'input_pipeline', 'model_fn', 'networks.keras_revnet'),
    ('batch_norm', 'class_weights_file', 'distribution', 'input', 'moving_average', 'optimizers', 'rules', 'seeding'),
    ('class_weights', 'host_call', 'learning_rate', 'machines', 'metrics', 'presets', 'tpu', 'weights'),
    ('model_dir',),
    ('config', 'loss_scale'),
    ('networks',),
    ('replicas',),
)

# The most lines that a reader needs for a module: its own, and those of all modules that it imports at its beginning.
CLOSURES = {
    'inception_v3.learning_rate': 1100,
    'inception_v3.optimizers': 1100,
    'inception_v3.moving_average': 600,
    'inception_v3.networks.inception_v3': 500,
    'inception_v3.model_fn': 3300,
    'inception_v3.input_pipeline': 4200,
    'examples.guide': 4000,
    'inception_v3.train_and_evaluate': 12_600,
}
# The documented program, which must not import the packages that manage a run, nor commands.
DOCUMENTED = {
    *('model_fn', 'host_call', 'batch_norm', 'learning_rate', 'optimizers', 'moving_average', 'metrics', 'seeding'),
    *('loss_scale', 'config', 'flags', 'presets', 'rules', 'networks', 'input_pipeline', 'input', 'tpu', 'weights'),
    *('distribution', 'replicas'),
}

# The entry of a run makes the digits for their preset, and says what is missing without `tools`.
ENTRY = 'inception_v3.main -> tools.datasets.digits'

Graph = Dict[str, FrozenSet[str]]
Table = Tuple[Tuple[str, ...], ...]


@functools.lru_cache(maxsize=None)
def parsed(path: pathlib.Path) -> ast.AST:
    return ast.parse(path.read_text())


def modules() -> Dict[str, pathlib.Path]:
    """The modules of all packages, by their dotted names, without `__init__`."""
    paths = [path for row in PACKAGES for package in row for path in (ROOT / package).rglob('*.py')]
    return {
        '.'.join(path.relative_to(ROOT).with_suffix('').parts): path for path in paths if path.name != '__init__.py'
    }


def imported(tree: ast.AST, with_functions: bool = True) -> Iterator[str]:
    """The names that a module imports anywhere, except only for types; for `from a import b`, both a and a.b."""
    if isinstance(tree, ast.FunctionDef) and not with_functions:
        return
    if isinstance(tree, ast.If) and isinstance(tree.test, ast.Name) and tree.test.id == 'TYPE_CHECKING':
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names)
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == 'deferred':
        # The tables of networks and of preprocessings name functions by their places.
        if with_functions:
            yield from (ast.literal_eval(place).partition(':')[0] for place in tree.args)
    elif isinstance(tree, ast.ImportFrom):
        assert tree.level == 0, 'imports are absolute'
        yield str(tree.module)
        yield from (f'{tree.module}.{alias.name}' for alias in tree.names)
    for node in ast.iter_child_nodes(tree):
        yield from imported(node, with_functions)


@pytest.fixture(scope='module')
def graph() -> Graph:
    """The modules of the packages that each module imports."""
    paths = modules()
    return {name: frozenset({*imported(parsed(path))} & paths.keys() - {name}) for name, path in paths.items()}


def entry_of(name: str, table: Table) -> str:
    """The entry of a module: the longest that is a prefix of its name; empty if there is none."""
    parts = name.split('.')
    entries = {entry for row in table for entry in row}
    found = ('.'.join(parts[:count]) for count in range(len(parts), 0, -1))
    return next((name for name in found if name in entries), '')


def against(graph: Graph, table: Table) -> List[str]:
    """The imports that do not point down a table."""
    rows = {entry: index for index, row in enumerate(table) for entry in row}
    wrong = []
    for module, targets in graph.items():
        for target in targets:
            one, other = entry_of(module, table), entry_of(target, table)
            if one != other and rows[one] >= rows[other]:
                wrong.append(f'{module} -> {target}')
    return sorted(wrong)


def program(graph: Graph) -> Graph:
    """The modules of the package inception_v3, by their names in it."""
    prefix = 'inception_v3.'
    return {
        name[len(prefix) :]: frozenset(target[len(prefix) :] for target in targets if target.startswith(prefix))
        for name, targets in graph.items()
        if name.startswith(prefix)
    }


def reachable(graph: Graph, start: str) -> Set[str]:
    found: Set[str] = set()
    waiting = [start]
    while waiting:
        for target in graph[waiting.pop()] - found:
            found.add(target)
            waiting.append(target)
    return found


def test_every_package_has_a_place() -> None:
    packages = {path.parent.name for path in ROOT.glob('*/__init__.py')} - {'tests'}
    assert packages == {name for row in PACKAGES for name in row}


def test_every_module_of_the_program_has_a_place(graph: Graph) -> None:
    assert not [module for module in program(graph) if not entry_of(module, LAYERS)]
    entries = {entry_of(module, LAYERS) for module in program(graph)}
    assert entries == {entry for row in LAYERS for entry in row}, 'an entry of the table has no module'


def test_packages_themselves_import_only_the_settings_of_tensorflow() -> None:
    names = [name for row in PACKAGES for package in row for name in (ROOT / package).rglob('__init__.py')]
    found = {target for path in names for target in imported(parsed(path))}
    names_of_types = {'typing', *(f'typing.{name}' for name in ('TYPE_CHECKING', 'Any', 'Dict', 'List'))}
    # Taking `tf` from `compat` loads TensorFlow.
    assert found <= {'compat', 'compat.settings', 'compat.tensorflow', 'importlib', 'os', 'sys', *names_of_types}


def test_packages_import_only_packages_below_them(graph: Graph) -> None:
    assert against(graph, PACKAGES) == [ENTRY]


def test_modules_of_the_program_import_only_layers_below_them(graph: Graph) -> None:
    assert not against(program(graph), LAYERS)


def test_imports_have_no_cycle(graph: Graph) -> None:
    assert not [name for name in graph if name in reachable(graph, name)]


def test_the_documented_program_stands_alone(graph: Graph) -> None:
    modules_of_it = [f'inception_v3.{name}' for name in program(graph) if name.split('.')[0] in DOCUMENTED]
    around = ('console.screen', 'inception_v3.run.', 'tools.', 'inception_v3.train_and_evaluate')
    needs = {name: [each for each in reachable(graph, name) if each.startswith(around)] for name in modules_of_it}
    assert not {name: found for name, found in needs.items() if found}


@pytest.mark.parametrize('module', CLOSURES)
def test_a_module_can_be_read_alone(module: str) -> None:
    paths, waiting, lines = modules(), [module], {}
    while waiting:
        name = waiting.pop()
        text = paths[name].read_text()
        lines[name] = len(text.splitlines())
        # Rarely needed modules are imported within functions.
        at_the_beginning = {each for node in ast.parse(text).body for each in imported(node, with_functions=False)}
        waiting += at_the_beginning & paths.keys() - lines.keys() - {*waiting}
    assert sum(lines.values()) <= CLOSURES[module], sorted(lines.items(), key=lambda item: -item[1])[:10]


def test_tensorflow_is_taken_from_the_module_of_its_versions() -> None:
    paths = [*(ROOT / 'tests').rglob('*.py'), *modules().values()]
    taken = {'tensorflow', 'tensorflow.compat', 'tensorflow.compat.v1', 'tensorflow.compat.v2'}
    # Parsing all files takes seconds.
    spelled = re.compile(r'import tensorflow|from tensorflow(\.compat\S*)? import')
    candidates = [path for path in paths if spelled.search(path.read_text())]
    users = {str(path.relative_to(ROOT)) for path in candidates if taken & {*imported(parsed(path))}}
    # The first of these stands alone, for other projects' programs; the second measures another library.
    others = {'compat/tensorflow_standins.py', 'tools/benchmarks/peers/tf_data.py'}
    assert users == {'compat/tensorflow.py', *others}


def test_only_the_emulated_tpu_replaces_functions_of_tensorflow() -> None:
    users = [name for name, path in modules().items() if re.search(r'\bmock\b', path.read_text())]
    assert users and all(name.startswith('inception_v3.tpu.emulation') for name in users), users
