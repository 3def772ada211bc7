"""The plan of a sweep: the study, its trials, and the checks before any of them runs."""

import fcntl
import fnmatch
import os
from typing import List, NamedTuple, Optional, Sequence

from absl import app

from console.json_content import from_json
from console.messages import shown
from data import remote
from data.files import text_of
from data.sources import source_of
from inception_v3 import flags
from inception_v3.data_set import fit_to_data_set
from inception_v3.fitting import splits_of
from studies.files import write_json
from studies.study import Study, StudyError, load
from studies.sweep import trials
from studies.sweep.trials import State, Trial

# The most names of trials that a message lists.
_MOST_NAMES = 12


class Plan(NamedTuple):
    """A study or a small version of it, the sweep's folder, its trials, and those that this command runs or lists."""

    file: str
    study: Study
    out: str
    all_trials: List[Trial]
    selected: List[Trial]


def make(
    file: str,
    out: Optional[str] = None,
    version: Optional[str] = None,
    pattern: Optional[str] = None,
    limit: Optional[int] = None,
    flags_of_trials: Sequence[str] = (),
) -> Plan:
    """Makes a plan from the command line of a sweep, whose words after `--` are the flags of all trials.

    Raises:
      StudyError: the study, its flags or the pattern are not valid.
    """
    try:
        study = load(file)
        study = study.small(version) if version else study
        given = flags.read(['sweep', *flags_of_trials])
        if given.help or given.verbose or given.preset:
            raise StudyError('after --: only flags of a run are allowed; the study names the preset.')
        study = study.with_flags(given.fields)
        out = os.path.join('runs', 'studies', study.name) if out is None else out
        all_trials = trials.trials_of(study, out)
    except StudyError as error:
        raise StudyError(f'{file}: {error}')
    selected = [trial for trial in all_trials if pattern is None or fnmatch.fnmatchcase(trial.name, pattern)]
    if not selected:
        names = ', '.join(trial.name for trial in all_trials[:_MOST_NAMES])
        names += ', …' if len(all_trials) > _MOST_NAMES else ''
        raise StudyError(f'--filter={shown(pattern)}: matches no trial. The trials are {names}.')
    if limit is not None:
        selected = [trial for trial in selected if trials.state_of(trial) is not State.DONE][:limit]
    return Plan(file, study, out, all_trials, selected)


def lock(folder: int, out: str) -> None:
    """Locks the sweep's folder, given by a file descriptor, against other sweeps, until the descriptor is closed."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StudyError(f'--out={out}: another sweep is running there. Wait until it ends, or name another folder.')
    except OSError:
        # Network file systems may not support locks. The program's own lock in each model_dir still holds.
        pass


def check(plan: Plan) -> None:
    """Checks that the sweep's folder is that of this study with the same flags, and that the trials have their data.

    Makes the digits once, before several trials would do so at the same time.

    Raises:
      StudyError: the folder is that of another study, or of this study with other flags; or a data set is missing or
        does not fit its trial.
      UnreachableError: a data set's storage cannot be reached.
    """
    study, out = plan.study, plan.out
    content = text_of(os.path.join(out, trials.STUDY_FILE))
    try:
        name = from_json(content, lambda values: values['name']) if content else study.name
    except ValueError:
        name = study.name
    if name != study.name:
        raise StudyError(f'--out={out}: holds the study {shown(name)}; name another folder for {study.name}.')
    trials.check_unchanged(plan.all_trials)
    seen = set()
    for trial in plan.selected:
        config = trial.config
        key = (config.use_data, source_of(config), config.num_classes)
        if key in seen:
            continue
        seen.add(key)
        try:
            config = fit_to_data_set(trial.command_line)
            if config.use_data == 'real':
                for split in splits_of(config):
                    source_of(config).find(split)
        except remote.UnreachableError:
            raise
        except app.UsageError as error:
            raise StudyError(f'{plan.file}: case {trial.case}: {error}')


def check_tpus(waiting: Sequence[Trial], slots: int) -> None:
    """Refuses trials that would use one TPU at the same time, with a number of trials at a time."""
    tpus = [t.config.tpu or t.config.master for t in waiting if t.config.use_tpu and not t.config.is_emulated]
    shared = next((tpu for tpu in tpus if tpus.count(tpu) > 1), None)
    if shared and slots > 1:
        raise StudyError(
            f'--tpu={shared}: several trials use this TPU, and {slots} would run at a time. Leave out --workers, or '
            'name a TPU for each trial.'
        )


def write_study(plan: Plan, program: Sequence[str]) -> None:
    """Writes `study.json`: the study, its cost, and the command line of each trial."""
    study = plan.study
    content = {
        'name': study.name,
        'question': study.question,
        'base': {'preset': study.preset, 'flags': dict(study.flags)},
        'cases': [{'name': case.name, 'settings': dict(case.settings)} for case in study.cases()],
        'seeds': study.all_seeds,
        'report': list(study.report),
        'cost': trials.cost_of(study, plan.all_trials)._asdict(),
        'commands': {trial.name: trials.command(program, trial) for trial in plan.all_trials},
    }
    write_json(os.path.join(plan.out, trials.STUDY_FILE), content)
