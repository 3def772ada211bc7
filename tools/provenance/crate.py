"""Copies a run into a new folder that can be deposited in an archive: an RO-Crate.

The folder has the records of the run, its newest and its best checkpoint, and `ro-crate-metadata.json`, which describes
each file with size and SHA-256, and each start of training as an action: command, program, data set and results
(RO-Crate 1.1, <https://w3id.org/ro/crate/1.1>, with the profile <https://w3id.org/ro/wfrun/process/0.5>). It is a
model_dir, too.
"""

import dataclasses
import json
import os
import shlex
import shutil
from typing import Any, Dict, Iterator, List, Optional, Tuple

from compat import tf
from compat.errors import CommandError
from data import dataset_info, files, remote
from inception_v3.model_dir import BEST_FOLDER, CONFIG_FILE, LIST_FILE, latest_checkpoint, step_of
from inception_v3.run.evaluations import RESULTS_FILE
from inception_v3.run.starts import FIRST_STEPS_FILE, STARTS_FILE, Start
from tools import extras
from tools.provenance.record import RunRecord

_VERSION = '1.1'
_PROFILE = 'https://w3id.org/ro/wfrun/process/0.5'
# This context defines sha256, which the context of RO-Crate 1.1 lacks.
_CONTEXT = 'https://w3id.org/ro/terms/workflow-run/context'
_RECORDS = {
    CONFIG_FILE: 'the configuration of the last start',
    STARTS_FILE: 'the starts of training: command, configuration, data set, versions and host',
    FIRST_STEPS_FILE: 'loss and digest of the variables after each of the first steps',
    RESULTS_FILE: 'the evaluations',
}
_ENCODINGS = {'.json': 'application/json', '.jsonl': 'application/jsonlines'}


def write(run: RunRecord, folder: str, licence: str) -> List[Dict[str, Any]]:
    """Writes the crate of a run, and returns the description of each file.

    Args:
      run: the run; its model_dir may be remote.
      folder: a local folder, new or empty.
      licence: a URL, or an identifier of spdx.org, such as CC-BY-4.0.

    Raises:
      CommandError: rocrate is not installed, the folder cannot be written, or the run has no start of training.
      CheckpointError: a checkpoint is damaged.
      RemoteError: a remote file cannot be read.
    """
    if remote.is_remote(folder) or (os.path.exists(folder) and not (os.path.isdir(folder) and not os.listdir(folder))):
        raise CommandError(f'--crate={folder}: is remote or exists already. Name a new local folder.')
    if not run.starts:
        raise CommandError(f'{run.model_dir}: contains no start of training; name the model_dir of a run.')
    try:
        from rocrate.rocrate import ROCrate
    except ImportError:
        raise CommandError(
            f'--crate: rocrate is not installed: {extras.command("archive")} on Python 3.9 or later; in a checkout, '
            './run --tf=2.15 has it.'
        )
    try:
        os.makedirs(folder, exist_ok=True)
        described = [*_copied(run, folder)]
        crate = ROCrate(version=_VERSION)
        _fill(crate, run, folder, licence, described)
        crate.write(folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, (OSError, tf.errors.OpError)):
            raise CommandError(f'--crate={folder}: cannot be written: {getattr(error, "message", error)}')
        raise
    return [properties for properties, _ in described]


def _copied(run: RunRecord, folder: str) -> Iterator[Tuple[Dict[str, Any], Optional[int]]]:
    """Copies the files, and yields the properties of each; and the step of a checkpoint's files, else None."""
    texts, steps, written = dict(_RECORDS), {}, {}
    for part, what in (('', 'newest'), (BEST_FOLDER, 'best')):
        checkpoint = latest_checkpoint(os.path.join(run.model_dir, part))
        if checkpoint:
            inside, name = os.path.split(os.path.relpath(checkpoint, run.model_dir))
            # The best checkpoint has its own records beside it.
            prefix = '' if part else f'{name}.'
            step, text = step_of(checkpoint), f'of the {what} checkpoint'
            found = [each for each in remote.names_in(os.path.dirname(checkpoint)) or () if each.startswith(prefix)]
            steps.update({os.path.join(inside, each): step for each in found})
            texts.update({os.path.join(inside, each): f'{text}, of step {step:,}' for each in found})
            pointer = os.path.join(part, LIST_FILE)
            texts[pointer] = f'the name {text}, for TensorFlow'
            listed = os.path.relpath(os.path.join(inside, name), part or '.')
            written[pointer] = f'model_checkpoint_path: "{listed}"\n'
    info = run.starts[-1].info
    if info:
        texts[dataset_info.FILE_NAME] = f'the description of the data set {info.name}'
        written[dataset_info.FILE_NAME] = json.dumps(dataclasses.asdict(info), indent=2) + '\n'
    for path, text in sorted(texts.items()):
        source, copy = os.path.join(run.model_dir, path), os.path.join(folder, path)
        if path not in written and not remote.exists(source):
            continue
        os.makedirs(os.path.dirname(copy), exist_ok=True)
        if path in written:
            files.write_whole(copy, written[path])
        else:
            with remote.explained(source, remote.READ):
                remote.check_kind(source)
                tf.io.gfile.copy(source, copy)
        properties = {
            'name': path,
            'description': text,
            'encodingFormat': _ENCODINGS.get(os.path.splitext(path)[1], 'application/octet-stream'),
            'contentSize': str(os.path.getsize(copy)),
            'sha256': files.sha256(copy),
        }
        yield properties, steps.get(path)


def _fill(crate: Any, run: RunRecord, folder: str, licence: str, described: List[Any]) -> None:
    from rocrate.model.contextentity import ContextEntity

    def entity(identifier: str, kind: str, **properties: Any) -> Any:
        return crate.add(ContextEntity(crate, identifier, {'@type': kind, **properties}))

    def program(start: Start) -> Any:
        versions = start.versions
        changed = ', with changes' if versions.get('modified') else ''
        software = entity(
            f'#inception-v3-tpu-{versions.get("source")}',
            'SoftwareApplication',
            name='inception-v3-tpu',
            version=str(versions.get('inception_v3')),
            description=f'revision {versions.get("revision")}{changed}; SHA-256 of its files {versions.get("source")}',
        )
        for name, version in ((name, versions.get(name)) for name in ('tensorflow', 'numpy')):
            url = f'https://pypi.org/project/{name}/{version}/'
            needed = entity(url, 'SoftwareApplication', name=name, version=version, url=url)
            software.append_to('softwareRequirements', needed)
        return software

    of_path = {
        properties['name']: crate.add_file(
            os.path.join(folder, properties['name']), properties['name'], properties=properties
        )
        for properties, _ in described
    }
    crate.metadata.extra_contexts.append(_CONTEXT)
    crate.name = os.path.basename(os.path.abspath(run.model_dir))
    scores = [f'top-1 {each.top_1:.2%} after step {each.step:,}' for each in run.evaluations[-1:]]
    crate.description = '; '.join([f'A training run of {run.config.network} on {run.starts[-1]}', *scores])
    url = licence if '://' in licence else f'https://spdx.org/licenses/{licence}'
    crate.license = entity(url, 'CreativeWork', name=licence, description='the licence of this folder')
    crate.root_dataset['conformsTo'] = entity(_PROFILE, 'CreativeWork', name='Process Run Crate', version='0.5')
    ends = [*(start.step for start in run.starts[1:]), float('inf')]
    for number, (start, end) in enumerate(zip(run.starts, ends), 1):
        made = [of_path[each['name']] for each, step in described if step is not None and start.step < step <= end]
        results = [of_path[RESULTS_FILE]] if number == len(ends) and RESULTS_FILE in of_path else []
        action = crate.add_action(
            program(start),
            f'#start-{number}',
            object=[of_path[name] for name in (CONFIG_FILE, dataset_info.FILE_NAME) if name in of_path],
            result=[*made, *results],
            properties={
                'name': f'Training from step {start.step:,}',
                'description': ' '.join(map(shlex.quote, start.command)),
                'startTime': start.time,
            },
        )
        crate.root_dataset.append_to('mentions', action)
