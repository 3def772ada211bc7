"""The findings of an audit: errors, which make training fail, and warnings."""

from typing import Any, Callable, Dict, List, Sequence, Tuple

from data import record_checker, records
from data.dataset_info import FILE_NAME

# The number of places or names that a finding lists.
NAMED_AT_MOST = 3

Report = Dict[str, Any]

_BAD_BOXES = 'records whose boxes cannot be used'


def judge(report: Report) -> Tuple[List[str], List[str]]:
    """Derives the findings from the content part of a report of `data.audit.report.audit`.

    Returns:
      The errors, which make training fail, and the warnings.
    """
    errors = [error for split in report['splits'] for error in _errors(split, report['splits'][split])]
    warnings = [warning for split in report['splits'] for warning in _warnings(split, report['splits'][split])]
    warnings += [*_about_identity(report), *_about_classes(report), *_about_duplicates(report)]
    others = report['other_files']
    if others:
        warnings.append(f'other files, which are not read: {len(others):,}: {_listed(others)}')
    return errors, warnings


def _errors(split: str, described: Report) -> List[str]:
    bad_files = described['bad_files']
    errors = [_at(place) for place in bad_files['first']]
    if bad_files['count'] > len(errors):
        errors.append(f'{split} files that cannot be read to their end: {bad_files["count"]:,}.')
    if described['files'] and not described['records']:
        errors.append(f'the {split} files have no records.')
    kinds = [
        ('bad_fields', 'records that cannot be used', 'Training stops at them'),
        (
            'undecodable',
            'images that cannot be decoded',
            'Training stops at them, except at crops of a JPEG that does not notice its damage',
        ),
    ]
    if split == records.TRAIN:
        kinds.append(('bad_boxes', _BAD_BOXES, 'With --use_annotated_bbox, training stops at them'))
    for key, what, consequence in kinds:
        found = described[key]
        if found['count']:
            errors.append(
                f'{split} {what}: {found["count"]:,}. {consequence}, unless --max_bad_records allows for them. '
                + _named(found)
            )
    return errors


def _warnings(split: str, described: Report) -> List[str]:
    warnings = []
    missing, contradictions, boxes = (described[key] for key in ('missing_files', 'contradictions', 'boxes'))
    if missing:
        all_files = len(missing) + described['files']
        warnings.append(f'missing {split} files: {len(missing):,} of {all_files:,}: {_listed(missing)}')
    expected = described['records_expected']
    if expected not in (None, described['records']):
        warnings.append(f'{split} records: {described["records"]:,}; {FILE_NAME} says {expected:,}.')
    if contradictions['count']:
        warnings.append(
            f'{split} records whose fields contradict their image: {contradictions["count"]:,}. Training ignores these '
            f'fields. {_named(contradictions)}'
        )
    left_out = described['left_out']
    if left_out['count']:
        warnings.append(
            f'files in the {split} shards that belong to no sample, and are left out: {left_out["count"]:,}. '
            f'{_named(left_out)}'
        )
    damaged, rotated = described['damaged'], described['rotated']
    if damaged['count']:
        warnings.append(
            f'{split} images with damaged pixels: {damaged["count"]:,}. Training uses them as they are. '
            f'{_named(damaged)}'
        )
    if rotated['count']:
        warnings.append(
            f'{split} images with an EXIF orientation: {rotated["count"]:,}. Training ignores it, and sees them '
            f'turned or mirrored; inception-v3 from-folder turns images upright. {_named(rotated)}'
        )
    bad_boxes = described['bad_boxes']
    if bad_boxes['count'] and split != records.TRAIN:
        warnings.append(f'{split} {_BAD_BOXES}: {bad_boxes["count"]:,}. Evaluation ignores boxes. {_named(bad_boxes)}')
    # Images without boxes are normal.
    partial = [
        f'{field} ({count:,})'
        for field, count in described['fields'].items()
        if count < described['records'] and not field.startswith('image/object/')
    ]
    if partial:
        warnings.append(f'fields that some of the {described["records"]:,} {split} records lack: {_listed(partial)}')
    if boxes['in_pixels'] or boxes['empty']:
        warnings.append(
            f'{split} boxes in pixels instead of fractions of the image: {boxes["in_pixels"]:,} of '
            f'{boxes["boxes"]:,}; without area: {boxes["empty"]:,}. --use_annotated_bbox ignores them, and does '
            'not crop an image without other boxes.'
        )
    if boxes['out_of_range']:
        warnings.append(
            f'{split} boxes that extend beyond their image, and are clipped: '
            f'{boxes["out_of_range"]:,} of {boxes["boxes"]:,}.'
        )
    return warnings


def _about_identity(report: Report) -> List[str]:
    prints = report['fingerprint']
    if prints['agree'] is False:
        return [f'{FILE_NAME} has the fingerprint of other data: {prints["dataset_json"]}.']
    if report['name'] is None and report['is_counted']:
        largest = max((c['label'] for c in report['classes'] if c[records.TRAIN] or c[records.VALIDATION]), default=0)
        return [
            f"no readable {FILE_NAME}: a run counts the images, and assumes ImageNet's 1,001 classes. "
            f'The largest label is {largest}: pass --num_classes={max(largest, 1) + 1}.'
        ]
    if report['name'] is None:
        flags = {'--num_train_images': records.TRAIN, '--num_eval_images': records.VALIDATION}
        counts = {flag: report['splits'][split]['records'] for flag, split in flags.items()}
        # The flags do not allow 0; a split without records is a finding of its own.
        given = ' '.join(f'{flag}={count}' for flag, count in counts.items() if count)
        return [
            f'no readable {FILE_NAME}: a run assumes the numbers of images and classes of ImageNet. '
            f'Pass {given}{" and " if given else ""}--num_classes.'
        ]
    return []


def _about_classes(report: Report) -> List[str]:
    # Label 0 is the background, which most data sets have no images of.
    classes = [c for c in report['classes'] if 1 <= c['label'] < report['num_classes']]
    kinds: Dict[str, List[str]] = {}
    named = {split: c[split] for c in report['classes'] if c['label'] == 0 for split in report['splits']}
    findings = []
    if report['name'] is None and not report['label_offset'] and any(named.values()):
        findings.append(
            f'images with label 0, which is the background: {sum(named.values()):,}. If it is a class, and the network '
            'should have a background, too, give --label_offset=1.'
        )
    for c in classes:
        trained, validated = bool(c[records.TRAIN]), bool(c[records.VALIDATION])
        what = {
            (False, True): 'classes with validation images and without training images',
            (False, False): 'classes without images',
            (True, False): 'classes without validation images',
        }.get((trained, validated))
        # A missing split is a finding of its own.
        if what and (trained or validated or report['splits'][records.TRAIN]['records']):
            kinds.setdefault(what, []).append(f'{c["label"]}' + (f' ({c["name"]})' if c['name'] else ''))
    return [*findings, *(f'{what}: {len(found):,}: {_listed(found)}' for what, found in kinds.items())]


def _about_duplicates(report: Report) -> List[str]:
    copies = report['duplicates']
    train, validation = records.TRAIN, records.VALIDATION

    def differing(group: Sequence[Report], what: str) -> List[Report]:
        firsts: Dict[Any, Report] = {}
        for place in group:
            firsts.setdefault(place[what], place)
        return [*firsts.values()]

    def within(group: Sequence[Report], split: str) -> List[Report]:
        return [place for place in group if place['split'] == split]

    # Each kind with a function that selects the places of a group that show it.
    kinds: Tuple[Tuple[int, str, Callable[[Sequence[Report]], List[Report]]], ...] = (
        (copies['of_several_labels'], 'images under several labels', lambda group: differing(group, 'label')),
        (
            copies['between'],
            'validation images that are also training images, which overstates the accuracy',
            lambda group: differing(group, 'split'),
        ),
        (copies[train], f'{train} images that are copies of others', lambda group: within(group, train)),
        (copies[validation], f'{validation} images that are copies of others', lambda group: within(group, validation)),
    )
    findings = []
    for count, what, showing in kinds:
        if count:
            examples = [shown for shown in map(showing, copies['first']) if len(shown) > 1][:NAMED_AT_MOST]
            places = [' = '.join(f'{p["path"]}, record {p["position"]}' for p in g[:NAMED_AT_MOST]) for g in examples]
            findings.append(f'{what}: {count:,}, such as {"; ".join(places)}')
    return findings


def _at(place: Report) -> str:
    return str(record_checker.BadRecord(**place))


def _named(found: Report) -> str:
    texts = [_at(place).rstrip('.') for place in found['first'][:NAMED_AT_MOST]]
    more = found['count'] - len(texts)
    return '; '.join(texts) + (f'; and {more:,} more' if more else '')


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - NAMED_AT_MOST
    return ', '.join(texts[:NAMED_AT_MOST]) + (f' and {more:,} more' if more > 0 else '')
