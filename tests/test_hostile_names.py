"""Names from files are printable text on one line wherever they appear: terminal, pages, Markdown, labels.txt."""

import dataclasses
import json
import logging
import os
import pathlib
import re
import shutil
import sys
import tarfile
from typing import Any, Dict, Tuple

import numpy as np
import pytest
from PIL import Image

from compat.log import logger
from compat.messages import in_code, in_markdown, in_rows, printable, shown
from console import html, program
from console.screen import Screen, set_up_logging
from data import dataset_info
from inception_v3.run.export import card
from inception_v3.run.summary import introduction_of, summary_of
from tests.support import commands
from tests.support.runs import FinishedRun
from tools import show
from tools.datasets.audit import __main__ as audit
from tools.datasets.tar_shards import __main__ as tar_shards
from tools.evaluate_report import __main__ as evaluate_report
from tools.export import __main__ as export
from tools.plan import __main__ as plan
from tools.predict import __main__ as predict
from tools.preflight import __main__ as preflight
from tools.provenance import __main__ as provenance
from tools.studies import compare

ESCAPE = 'red\x1b[31m\x1b]0;title\x07'
NAMES = (
    ESCAPE,
    'two\nerror: lines',
    'carriage\rreturn\x0b\x0c\x85\u2028\u2029',
    '<script>alert(1)</script><img src=x onerror=alert(1)>',
    '[a link](http://host/) | `code` | **bold** ![p](x)',
    'right\u202eto left\u2066\u200f',
    'nul\0 and delete\x7f and C1\x9b31m',
    'surrogate\udcff\ud800',
    '[red]rich[/red] {{ jinja }} {% raw %} $tex$',
    'long' * 5000,
    '```\n# heading',
)
# Newlines separate the lines of the output itself.
_HARMFUL = re.compile('[^\\n\\t\x20-\x7e\u00a0-\uffff]|[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]')


def check(text: str, *names: str) -> None:
    """Checks that a text has no control characters, and that no newline in a name begins a line."""
    assert not _HARMFUL.search(text), ascii(_HARMFUL.findall(text))
    assert not any(line.startswith(('error: lines', '# heading')) for line in text.splitlines())


@pytest.mark.parametrize('name', NAMES, ids=range(len(NAMES)))
def test_texts__are_printable_on_one_line(name: str) -> None:
    for text in (printable(name), shown(name), in_rows([('a', name)]), in_markdown(name), in_code(name)):
        check(text)
        assert len(text.splitlines()) == 1
    page = html.template('{{ name }}').render(name=name)
    assert '<' not in page and not _HARMFUL.search(page)
    assert not re.search(r'<|(?<!\\)[|*_`]|\]\(', in_markdown(name)) and '`' not in in_code(name)
    (line,) = card.labels([name], 1).splitlines()
    check(line)
    assert printable('Käse 犬 😀 a|b <c>') == 'Käse 犬 😀 a|b <c>'


@pytest.mark.parametrize('encoding', ['utf-8', 'ascii'])
def test_outlets__print_escape_sequences(encoding: str, tmp_path: Any, monkeypatch: Any) -> None:
    paths = [str(tmp_path / name) for name in ('out', 'err')]
    out, err = (open(path, 'w', encoding=encoding) for path in paths)  # noqa: SIM115
    monkeypatch.setattr(sys, 'stdout', out)
    monkeypatch.setattr(sys, 'stderr', err)

    def command(screen: Screen) -> None:
        set_up_logging(screen, verbose=False)
        for name in NAMES:
            print(name)
            logger.info('a name: %s', name)
            screen.update(name, at_once=True)
            logging.getLogger('tensorflow').critical('a name: %s', name)
        raise program.CommandError(f'wrong: {ESCAPE}')

    assert program.run(command) == 2
    assert (sys.stdout, sys.stderr) == (out, err)
    out.close()
    err.close()
    for path in paths:
        text = pathlib.Path(path).read_text(encoding)
        assert not _HARMFUL.search(text) and '\\x1b[31m' in text
    # A message of this program's log, in standard error, is one line.
    assert len([line for line in text.split('\n') if 'two\\nerror: lines' in line]) == 2


READABLE = [name for name in NAMES if '\ud800' not in name]


def test_tar_shards__list_prints_no_escape_sequences(tmp_path: pathlib.Path) -> None:
    path = tmp_path / 'train-00000-of-00001.tar'
    with tarfile.open(str(path), 'w', format=tarfile.GNU_FORMAT) as archive:
        for name in NAMES:
            archive.addfile(
                tarfile.TarInfo(f'{name.replace(".", "")[:60]}.jpg'.replace('\0', '').replace('\ud800', ''))
            )
    done = commands.run(tar_shards.main, 'list', path)
    check(done.stdout + done.stderr)
    assert 'red\\x1b[31m' in done.stdout


@pytest.mark.program
def test_commands__print_no_escape_sequences_of_a_run(
    finished_run: FinishedRun, one_layer: None, tmp_path: pathlib.Path
) -> None:
    data_dir, model_dir, out = (str(tmp_path / name) for name in ('data', 'model', 'out'))
    shutil.copytree(finished_run.config.data_dir, data_dir)
    shutil.copytree(str(finished_run.config.model_dir), model_dir)
    names = [*READABLE, *'abcdefghij'][:10]
    info = dataset_info.read(data_dir)
    assert info
    texts = {'name': NAMES[1], 'source': NAMES[3], 'class_names': ['background', *names], 'fingerprint': ESCAPE}
    info = dataclasses.replace(info, **texts)
    (tmp_path / 'data' / 'dataset.json').write_text(json.dumps(dataclasses.asdict(info)))
    config = dataclasses.replace(finished_run.config, data_dir=data_dir, model_dir=model_dir, export_dir=None)
    (tmp_path / 'model' / 'config.json').write_text(config.to_json())
    for file in ('starts.jsonl', 'results.jsonl'):
        lines = [json.loads(line) for line in (tmp_path / 'model' / file).read_text().splitlines()]
        for line in lines:
            described = {'command': list(NAMES), 'data_set': NAMES[1], 'directory': ESCAPE}
            line.update(described if 'command' in line else {})
            line['time'] = f'{NAMES[1]}{ESCAPE}'
            if 'versions' in line:
                line.update(described)
                # A run names its classes by its own record.
                line.update({'description': dataclasses.asdict(info), 'fingerprint': ESCAPE})
                line['versions'].update({ESCAPE: NAMES[1], 'revision': 7, NAMES[1]: None})
                line['host']['name'] = NAMES[1]
        (tmp_path / 'model' / file).write_text(''.join(json.dumps(line) + '\n' for line in lines))
    image = tmp_path / 'two\nerror: lines\x1b[31m\udcff.png'
    Image.fromarray(np.random.RandomState(0).randint(0, 255, (90, 90, 3), np.uint8)).save(
        os.fsencode(str(image)).decode(errors='surrogateescape')
    )
    flags = [f'--data_dir={data_dir}', f'--model_dir={tmp_path}/new', '--use_tpu=False', '--num_classes=11']
    outputs: Dict[Any, Tuple[Any, ...]] = {
        predict: (predict.main, image, f'--model={model_dir}', f'--html={out}-page.html', '--top=10'),
        provenance: (provenance.main, 'show', model_dir),
        evaluate_report: (evaluate_report.main, model_dir, f'--out={out}-report'),
        export: (export.main, model_dir, '--format=npz', f'--out={out}-export'),
        compare: (compare.main, model_dir, f'--out={out}-comparison'),
        show: (show.main, image, f'--out={out}-shown', '--size=75'),
        plan: (lambda: plan.main(sys.argv), *flags, f'--out={out}-plan'),
        preflight: (lambda: preflight.main(sys.argv), *flags),
        audit: (audit.main, data_dir, '--processes=1'),
    }
    for text in (introduction_of(config, info), summary_of(config, info, None, None, None, None)):
        check(text)
        assert 'two\\nerror: lines' in text
    for module, (main, *arguments) in outputs.items():
        done = commands.run(main, *arguments)
        assert done.returncode in (0, 2) and 'Traceback' not in done.stderr, (module.__name__, done)
        check(done.stdout + done.stderr)
    written = [path for path in tmp_path.glob('out-*/**/*') if path.suffix in ('.md', '.html', '.txt')]
    assert len(written) >= 5
    for path in [*written, tmp_path / 'out-page.html']:
        # The library for charts in pages has such characters itself.
        text = re.sub('<script[^>]*>.{1000000,}?</script>', '', path.read_text(encoding='utf-8'), flags=re.DOTALL)
        assert not _HARMFUL.search(text), (path, ascii(_HARMFUL.findall(text)))
        # Code of Markdown is literal.
        assert path.suffix == '.txt' or '<script>alert' not in re.sub('(?s)\n```.*?\n```', '', text), path
    assert (tmp_path / 'out-export' / 'npz' / 'labels.txt').read_text().splitlines()[1:] == [
        printable(' '.join(name.split())) for name in names
    ]
