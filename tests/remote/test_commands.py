"""Tests of audit, predict and evaluate_report on data sets and runs in a remote store."""

import json
import pathlib
from typing import Any, Dict

import pytest
import skimage.data

from data.sources import Source
from tests.remote.faults import READ
from tests.remote.store import Store
from tests.support.photos import encode_jpeg
from tools.datasets.audit.report import audit
from tools.datasets.tar_shards import conversion as tar_shards


@pytest.mark.program
@pytest.mark.parametrize(('data_format', 'ending'), [('tfrecord', ''), ('tar', '.tar')])
def test_audit__gives_the_local_report_and_names_a_denied_file(
    store: Store, photo_dir: str, data_format: str, ending: str, tmp_path: pathlib.Path
) -> None:
    def audited(code: int) -> Dict[str, Any]:
        done = store.quick('tools.datasets.audit', url, '--json', f'--data_format={data_format}')
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    data_dir = photo_dir
    if data_format == 'tar':
        data_dir = str(tmp_path / 'tar')
        tar_shards.convert(photo_dir, data_dir, 0, print)
    local = audit(Source(data_dir, data_format), None, 1, lambda what, total: lambda done: None)
    url = store.upload(data_dir, 'data')
    report = audited(0)
    for key in ('splits', 'classes', 'fingerprint', 'other_files'):
        assert report[key] == local[key]
    store.faults.add(403, '/data/train-00000', [READ])
    report = audited(2)
    (error,) = report['errors']
    assert f'data/train-00000-of-00002{ending}, record 0: ' in error and store.who in error
    assert [report['splits'][split]['records'] for split in ('train', 'validation')] == [3, 5]


_CLASSIFY_AND_REPORT = """
import sys
from tools.evaluate_report import __main__ as evaluate_report
from tools.predict import __main__ as predict
from inception_v3.networks.registry import NETWORKS
from tests.support.runs import ONE_LAYER
NETWORKS['inception_v3'] = ONE_LAYER
url, image = sys.argv[1:]
codes = [predict.main([image, f'--model={url}/{place}', '--json']) for place in ('run', 'export', 'none')]
print([*codes, evaluate_report.main([f'{url}/run'])])
"""


# One store: `test_runs.py` reads and writes every file of a run in both.
@pytest.mark.slow
def test_remote_run__can_be_used_by_predict_and_evaluate_report(gs: Store, digits_dir: str, tmp_path: Any) -> None:
    store = gs
    data = store.upload(digits_dir, 'data')
    flags = ('--preset=digits', f'--data_dir={data}', '--train_steps=2', '--eval_total_size=64')
    trained = store.quick_main(*flags, f'--model_dir={store.url}/run', f'--export_dir={store.url}/export')
    assert trained.returncode == 0, trained.stderr
    image = tmp_path / 'cat.jpg'
    image.write_bytes(encode_jpeg(skimage.data.chelsea()))
    done = store.python('-c', _CLASSIFY_AND_REPORT, store.url, str(image))
    by_checkpoint, by_saved_model, *_, codes = done.stdout.splitlines()
    assert codes == '[0, 0, 2, 0]', done.stderr
    assert f'--model={store.url}/none: ' in done.stderr
    for one, other in zip(json.loads(by_checkpoint)['predictions'], json.loads(by_saved_model)['predictions']):
        assert (one['class'], one['name']) == (other['class'], other['name'])
        assert one['probability'] == pytest.approx(other['probability'], rel=1e-5)
    report = store.objects('run/evaluation_report')
    assert {name.rpartition('/')[2] for name in report} >= {'report.html', 'report.json', 'confusion.png'}
    (line,) = store.objects('run/results.jsonl').values()
    evaluation, reported = json.loads(line), json.loads(report['run/evaluation_report/report.json'])
    assert reported['evaluation']['cross_entropy'] == pytest.approx(evaluation['cross_entropy'], rel=1e-5)
    assert reported['mistakes'][0]['path'].startswith(f'{data}/validation-')
