"""What made a model: its configuration, seed, data, versions and commands, its evaluations and its checkpoints.

--verify makes the first steps of a run with a seed again, elsewhere, and compares every variable to the bit: the exit
code is 0 if they are the same, 1 if not, and 2 if that cannot be told. --diff compares two runs: 0 if neither their
configurations nor their data nor their results differ, else 1.
"""

import argparse
import json
import sys
from typing import Any, Dict, List, Optional, Sequence, Tuple

import tensorflow as tf
from absl import app

from console.screen import Screen, set_up_logging
from inception_v3.model_dir import starts
from inception_v3.model_dir.evaluations import Evaluation
from inception_v3.model_dir.starts import Start
from inception_v3.provenance import reproduction, run_record
from inception_v3.provenance.reproduction import Repetition
from inception_v3.provenance.run_record import Checkpoint, Difference, RunRecord

_DIFFERENT, _CANNOT, _INTERRUPTED = 1, 2, 130
# As many digits of a digest tell a user's checkpoints, data sets and programs apart.
_DIGITS_SHOWN = 12

_Rows = List[Tuple[str, str]]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Says what the command line asks for, and returns the exit code."""
    parser = argparse.ArgumentParser(
        prog='python -m inception_v3.provenance',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('model_dir', help='the model_dir of a run, which may be at gs:// or s3://')
    task = parser.add_mutually_exclusive_group()
    task.add_argument('--verify', action='store_true', help='make the first steps again, and compare them')
    task.add_argument('--diff', metavar='OTHER', help='compare the run with that of another model_dir')
    parser.add_argument('--steps', type=int, help='how many steps --verify makes (default: all that were recorded, 10)')
    parser.add_argument('--json', action='store_true', help='print an object for programs')
    arguments = parser.parse_args(argv)
    if arguments.steps is not None and not arguments.verify:
        parser.error('--steps: is for --verify.')
    if arguments.steps is not None and arguments.steps < 1:
        parser.error(f'--steps={arguments.steps}: must be at least 1.')
    screen = Screen(sys.stderr)
    set_up_logging(screen, verbose=False)
    try:
        if arguments.verify:
            return _verify(arguments.model_dir, arguments.steps, arguments.json)
        if arguments.diff:
            return _diff(arguments.model_dir, arguments.diff, arguments.json)
        run = run_record.read(arguments.model_dir)
        print(json.dumps(run.json(), indent=2) if arguments.json else _text_of_run(run))
        return 0
    except app.UsageError as error:
        print(f'error: {error}', file=sys.stderr)
    except (OSError, tf.errors.OpError) as error:
        print(f'error: {error.message if isinstance(error, tf.errors.OpError) else error}', file=sys.stderr)
    except KeyboardInterrupt:
        return _INTERRUPTED
    return _CANNOT


def _verify(model_dir: str, steps: Optional[int], as_json: bool) -> int:
    repetition = reproduction.repeat(model_dir, steps)
    surroundings = run_record.surrounding_differences(repetition.old_start, repetition.new_start)
    data = run_record.data_differences(repetition.old_start, repetition.new_start)
    if as_json:
        recorded, repeated = repetition.different or (None, None)
        values = {
            'same': not repetition.different,
            'compared': repetition.compared,
            'recorded': recorded and recorded._asdict(),
            'repeated': repeated and repeated._asdict(),
            'data': _as_objects(data),
            'surroundings': _as_objects(surroundings),
        }
        print(json.dumps(values, indent=2))
    else:
        print(_text_of_repetition(repetition, data, surroundings))
    return _DIFFERENT if repetition.different else 0


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
        sections.append(
            f'{evaluations} evaluations and {checkpoints} checkpoints of the same steps were compared; '
            + (f'different: {", ".join(different)}' if different else 'no difference of configuration, data or results')
        )
        print('\n\n'.join(sections))
    return _DIFFERENT if different else 0


def _as_objects(differences: List[Difference]) -> List[Dict[str, Any]]:
    return [difference._asdict() for difference in differences]


def _text_of_run(run: RunRecord) -> str:
    seed = 'none: another run would be another' if run.config.seed is None else str(run.config.seed)
    sections = [_section(run.model_dir, [('seed', seed)])]
    values = [(name, str(value)) for name, value in starts.not_default(run.config).items()]
    sections.append(_section('configuration, but for the defaults', values or [('', 'the defaults')]))
    for start in run.starts:
        sections.append(_section(f'started at step {start.step:,}, {start.time}', _rows_of_start(start)))
    if not run.starts:
        sections.append(_section('starts', [('', 'none was recorded')]))
    scores = [_row_of_evaluation(evaluation) for evaluation in run.evaluations]
    sections.append(_section('evaluations', scores or [('', 'none')]))
    checkpoints = [_row_of_checkpoint(checkpoint) for checkpoint in run.checkpoints]
    sections.append(_section('checkpoints', checkpoints or [('', 'none')]))
    return '\n\n'.join(sections)


def _rows_of_start(start: Start) -> _Rows:
    versions = dict(start.versions)
    revision, modified, source = (versions.pop(name, None) for name in ('revision', 'modified', 'source'))
    program = f'{versions.pop("inception_v3", "?")}, source {str(source)[:_DIGITS_SHOWN]}'
    if revision:
        program += f', git revision {revision[:_DIGITS_SHOWN]}{", modified" if modified else ""}'
    data_set = ', '.join(part for part in (start.data_set, start.fingerprint[:_DIGITS_SHOWN]) if part)
    if start.config.get('use_data') == 'fake':
        data_set = 'made up'
    return [
        *([('from', start.checkpoint)] if start.checkpoint else []),
        ('command', ' '.join(start.command)),
        ('in', start.directory),
        ('host', f'{start.host.get("name")}: {start.host.get("cores")} cores, {start.host.get("processor")}'),
        ('data set', data_set or 'does not say what it is'),
        ('inception_v3', program),
        *((name, str(version)) for name, version in versions.items()),
    ]


def _row_of_evaluation(evaluation: Evaluation) -> Tuple[str, str]:
    text = (
        f'top-1 {evaluation.top_1:.2%}, top-5 {evaluation.top_5:.2%}, cross-entropy {evaluation.cross_entropy:.4f}, '
        f'{evaluation.images:,} images, {evaluation.weights} weights, {evaluation.time}'
    )
    return f'step {evaluation.step:,}', '; '.join([text, *evaluation.changed])


def _row_of_checkpoint(checkpoint: Checkpoint) -> Tuple[str, str]:
    if not checkpoint.digest:
        return checkpoint.checkpoint, checkpoint.problem
    return checkpoint.checkpoint, f'step {checkpoint.step:,}, digest {checkpoint.digest}'


def _text_of_repetition(repetition: Repetition, data: List[Difference], surroundings: List[Difference]) -> str:
    steps = ', '.join(str(step) for step in repetition.compared)
    if not repetition.different:
        return f'the same to the bit, the loss and every variable, after step {steps}'
    old, new = repetition.different
    result = [Difference('loss', old.loss, new.loss), Difference('digest', old.digest, new.digest)]
    sections = [
        _section(f'not the same after step {old.step} (compared: {steps})', _rows(result)),
        _section('data', _rows(data) or [('', 'the same')]),
        _section('surroundings', _rows(surroundings) or [('', 'the same, as far as it is known')]),
    ]
    return '\n\n'.join(sections)


def _rows(differences: List[Difference]) -> _Rows:
    return [(name, f'{_shown(old)} -> {_shown(new)}') for name, old, new in differences]


def _shown(value: Any) -> str:
    return 'none' if value is None or value == '' else str(value)


def _section(title: str, rows: _Rows) -> str:
    width = max(len(name) for name, _ in rows)
    return '\n'.join([title, *(f'  {name:<{width}}  {value}'.rstrip() for name, value in rows)])


if __name__ == '__main__':
    sys.exit(main())
