"""Prints a sample of mutants, one JSON object a line: `mutants.py SEED COUNT FILE…`, in the environment of cosmic-ray.

cosmic-ray finds the places and makes the changes. Most of its operators have variants: + becomes each of ten others.
Here, each place is one mutant for each kind of operator, and the seed draws its variant: otherwise, arithmetic alone
would fill the sample. Unlikely mistakes are left out, such as << for +, or `is` for ==: most of them raise errors at
once. The first line has the number of all places, by file.
"""

import ast
import collections
import json
import pathlib
import random
import sys
from typing import Any, Dict, Iterator, List, Tuple

import cosmic_ray.plugins
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code

# The kind of an operator is its name up to its variant: core/ReplaceBinaryOperator_Add_Sub.
Place = Tuple[str, str, int, int]  # The file, the kind of operator, line and column.


# A binary operator or a comparison may become any other of its group.
_GROUPS = (
    ('Add', 'Sub', 'Mul', 'Div', 'FloorDiv', 'Mod'),
    ('BitAnd', 'BitOr', 'BitXor', 'LShift', 'RShift'),
    ('Eq', 'NotEq', 'Lt', 'LtE', 'Gt', 'GtE'),
    ('Is', 'IsNot'),
    ('In', 'NotIn'),
)


def is_likely(name: str) -> bool:
    """Whether a programmer might make an operator's change by mistake."""
    kind, _, change = name.partition('_')
    if kind not in ('ReplaceBinaryOperator', 'ReplaceComparisonOperator'):
        return True
    old, new = change.split('_')
    old = 'Mul' if old in ('Pow', 'MatMul') else old
    return any(new in group and old in group for group in _GROUPS)


def operators() -> Dict[str, Any]:
    """The operators that need no arguments, by name."""
    found = {}
    for name in sorted(cosmic_ray.plugins.operator_names()):
        cls = cosmic_ray.plugins.get_operator(name)
        if not cls.arguments() and is_likely(name.split('/')[1]):
            found[name.split('/')[1]] = cls()
    return found


def find_places(file: str, source: str) -> Dict[Place, List[Tuple[str, int]]]:
    """The variants of every place in a file: each the name of an operator and the number of its occurrence."""
    places: Dict[Place, List[Tuple[str, int]]] = collections.defaultdict(list)
    nodes = list(ast_nodes(get_ast(source)))
    for name, operator in operators().items():
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, ((line, column), _) in enumerate(positions):
            places[file, name.split('_')[0], line, column].append((name, occurrence))
    return places


def statements(tree: ast.AST) -> Iterator[Tuple[int, int]]:
    """The first and last lines of statements; of a compound statement, those of its header."""
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            body = getattr(node, 'body', None)
            end = body[0].lineno - 1 if body else node.end_lineno  # type: ignore[attr-defined]
            yield node.lineno, max(node.lineno, end)


def main(seed: int, count: int, files: List[str]) -> None:
    """Prints the number of places, and the first `count` of them in the order that the seed draws."""
    sources = {file: pathlib.Path(file).read_text() for file in files}
    places: Dict[Place, List[Tuple[str, int]]] = {}
    for file, source in sources.items():
        places.update(find_places(file, source))
    of = collections.Counter(file for file, *_ in places)
    print(json.dumps({'of': of}))
    draw = random.Random(seed)
    order = sorted(places)
    draw.shuffle(order)
    for file, kind, line, column in order:
        if not count:
            break
        name, occurrence = draw.choice(places[file, kind, line, column])
        source = sources[file]
        try:
            mutated = mutate_code(source, operators()[name], occurrence)
            compile(mutated, file, 'exec')
        except (SyntaxError, TypeError, AttributeError):
            # It does not compile, or cosmic-ray cannot make it, such as another exception than `socket.timeout`.
            continue
        lines = [span for span in statements(ast.parse(source)) if span[0] <= line <= span[1]]
        first, last = min(lines, key=lambda span: span[1] - span[0], default=(line, line))
        before, after = source.split('\n'), mutated.split('\n')
        changed = next((index for index, (old, new) in enumerate(zip(before, after)) if old != new), line - 1)
        mutant = {'file': file, 'line': line, 'column': column, 'operator': name, 'first': first, 'last': last}
        print(json.dumps({**mutant, 'before': before[changed], 'after': after[changed], 'source': mutated}), flush=True)
        count -= 1


if __name__ == '__main__':
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
