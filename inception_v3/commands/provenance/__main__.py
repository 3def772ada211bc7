"""Shows the origin of a model: configuration, seed, data, versions and commands, evaluations and checkpoints.

--verify repeats the first steps of a run with --seed, in a new process, and compares the loss and every variable bit
for bit. --diff compares the configurations, data and results of two runs.
"""

import json
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

from console import program
from console.command_line import new_parser
from console.errors import DONE, FIX
from console.messages import in_rows, printable
from console.paths import expanded
from console.screen import Screen
from inception_v3.commands.provenance import run_record, verification
from inception_v3.commands.provenance.run_record import Checkpoint, Difference, RunRecord
from inception_v3.commands.provenance.verification import Verification
from inception_v3.run import starts
from inception_v3.run.evaluations import Evaluation, shows_top_5
from inception_v3.run.starts import Start

_HELP = f'{__doc__}\nIf --verify or --diff finds a difference, the exit code is {FIX}.'
# Enough digits of a SHA-256 to distinguish a user's checkpoints, data sets and versions of the program.
_DIGITS_SHOWN = 12

_Rows = List[Tuple[str, str]]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Shows, verifies or compares as a command line asks, and returns the exit code."""
    parser = new_parser('provenance', _HELP)
    parser.add_argument('model_dir', help='the model_dir of a run; may be at gs:// or s3://')
    task = parser.add_mutually_exclusive_group()
    task.add_argument('--verify', action='store_true', help='repeat the first steps, and compare them')
    task.add_argument('--diff', metavar='OTHER', help='compare the run with the run in another model_dir')
    parser.add_argument('--steps', type=int, help='number of steps to verify (default: all recorded steps, up to 10)')
    parser.add_argument('--json', action='store_true', help='print a JSON object')
    arguments = parser.parse_args(expanded(argv))
    if arguments.steps is not None and not arguments.verify:
        parser.error('--steps: needs --verify.')
    if arguments.steps is not None and arguments.steps < 1:
        parser.error(f'--steps={arguments.steps}: must be at least 1.')

    def command(screen: Screen) -> int:
        if arguments.verify:
            return _verify(arguments.model_dir, arguments.steps, arguments.json)
        if arguments.diff:
            return _diff(arguments.model_dir, arguments.diff, arguments.json)
        run = run_record.read(arguments.model_dir)
        print(json.dumps(run.json(), indent=2) if arguments.json else _text_of_run(run))
        return DONE

    return program.run(command)


def _verify(model_dir: str, steps: Optional[int], as_json: bool) -> int:
    result = verification.verify(model_dir, steps)
    surroundings = run_record.surrounding_differences(result.old_start, result.new_start)
    data = run_record.data_differences(result.old_start, result.new_start)
    if as_json:
        recorded, repeated = result.different or (None, None)
        values = {
            'same': not result.different,
            'compared': result.compared,
            'recorded': recorded and recorded._asdict(),
            'repeated': repeated and repeated._asdict(),
            'data': _as_objects(data),
            'surroundings': _as_objects(surroundings),
        }
        print(json.dumps(values, indent=2))
    else:
        print(_text_of_verification(result, data, surroundings))
    return FIX if result.different else DONE


def _diff(old_dir: str, new_dir: str, as_json: bool) -> int:
    old, new = run_record.read(old_dir), run_record.read(new_dir)
    found = run_record.differences(old, new)
    different = [name for name in ('configuration', 'data', 'results') if found[name]]
    evaluations, checkpoints = run_record.common(old, new)
    if as_json:
        values: Dict[str, Any] = {name: _as_objects(differences) for name, differences in found.items()}
        compared = {'evaluations_compared': evaluations, 'checkpoints_compared': checkpoints}
        print(json.dumps({'same': not different, **values, **compared}, indent=2))
    else:
        sections = [f'{old_dir} -> {new_dir}']
        for name, differences in found.items():
            sections.append(_section(name, _rows(differences) or [('', 'the same')]))
        verdict = f'different: {", ".join(different)}' if different else 'same configuration, data and results'
        sections.append(f'compared {evaluations} evaluations and {checkpoints} checkpoints by step; {verdict}')
        print('\n\n'.join(sections))
    return FIX if different else DONE


def _as_objects(differences: List[Difference]) -> List[Dict[str, Any]]:
    return [difference._asdict() for difference in differences]


def _text_of_run(run: RunRecord) -> str:
    seed = 'none: the run cannot be repeated' if run.config.seed is None else str(run.config.seed)
    sections = [_section(run.model_dir, [('seed', seed)])]
    values = [(name, str(value)) for name, value in starts.not_default(run.config).items()]
    sections.append(_section('configuration that differs from the defaults', values or [('', 'none')]))
    for start in run.starts:
        sections.append(_section(f'started at step {start.step:,}, {start.time}', _rows_of_start(start)))
    if not run.starts:
        sections.append(_section('starts', [('', 'none recorded')]))
    scores = [_row_of_evaluation(evaluation, run.config.num_classes) for evaluation in run.evaluations]
    sections.append(_section('evaluations', scores or [('', 'none')]))
    checkpoints = [_row_of_checkpoint(checkpoint) for checkpoint in run.checkpoints]
    sections.append(_section('checkpoints', checkpoints or [('', 'none')]))
    return '\n\n'.join(sections)


def _rows_of_start(start: Start) -> _Rows:
    versions = dict(start.versions)
    revision, modified, source = (versions.pop(name, None) for name in ('revision', 'modified', 'source'))
    program = f'{versions.pop("inception_v3", "?")}, source {str(source)[:_DIGITS_SHOWN]}'
    if revision:
        program += f', git revision {str(revision)[:_DIGITS_SHOWN]}{", modified" if modified else ""}'
    data_set = ', '.join(part for part in (start.data_set, start.fingerprint[:_DIGITS_SHOWN]) if part)
    if start.config.get('use_data') == 'fake':
        data_set = 'synthetic images'
    return [
        *([('from', start.checkpoint)] if start.checkpoint else []),
        *([('weights', _text_of_weights(start.weights))] if start.weights else []),
        ('command', ' '.join(start.command)),
        ('in', start.directory),
        ('host', f'{start.host.get("name")}: {start.host.get("cores")} cores, {start.host.get("processor")}'),
        ('data set', data_set or 'has no name and no fingerprint'),
        ('inception_v3', program),
        *((name, str(version)) for name, version in versions.items()),
    ]


def _text_of_weights(weights: Dict[str, Any]) -> str:
    step = f', step {weights["step"]:,}' if isinstance(weights.get('step'), int) else ''
    return f'{weights.get("path")}{step}, {weights.get("values")}, digest {weights.get("digest")}'


def _row_of_evaluation(evaluation: Evaluation, num_classes: int) -> Tuple[str, str]:
    top_5 = f'top-5 {evaluation.top_5:.2%}, ' if shows_top_5(num_classes) else ''
    text = (
        f'top-1 {evaluation.top_1:.2%}, {top_5}cross-entropy {evaluation.cross_entropy:.4f}, '
        f'{evaluation.images:,} images, {evaluation.weights} weights, {evaluation.time}'
    )
    return f'step {evaluation.step:,}', '; '.join([text, *evaluation.changed])


def _row_of_checkpoint(checkpoint: Checkpoint) -> Tuple[str, str]:
    if not checkpoint.digest:
        return checkpoint.checkpoint, checkpoint.problem
    return checkpoint.checkpoint, f'step {checkpoint.step:,}, digest {checkpoint.digest}'


def _text_of_verification(result: Verification, data: List[Difference], surroundings: List[Difference]) -> str:
    steps = ', '.join(str(step) for step in result.compared)
    if not result.different:
        return f'loss and variables are equal bit for bit; compared after step {steps}'
    old, new = result.different
    values = [Difference('loss', old.loss, new.loss), Difference('digest', old.digest, new.digest)]
    sections = [
        _section(f'different after step {old.step}; compared after step {steps}', _rows(values)),
        _section('data', _rows(data) or [('', 'the same')]),
        _section('surroundings', _rows(surroundings) or [('', 'the same, as far as recorded')]),
    ]
    return '\n\n'.join(sections)


def _rows(differences: List[Difference]) -> _Rows:
    return [(name, f'{_shown(old)} -> {_shown(new)}') for name, old, new in differences]


def _shown(value: Any) -> str:
    return 'none' if value is None or value == '' else str(value)


def _section(title: str, rows: _Rows) -> str:
    return f'{printable(title)}\n{in_rows(rows, "  ")}'


if __name__ == '__main__':
    sys.exit(main())
