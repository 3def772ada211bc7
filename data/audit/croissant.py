"""Describes a data set in Croissant 1.0, the JSON-LD that archives and searches of data sets read.

`croissant.json` stands beside `dataset.json`. It has every file with its size and SHA-256, the classes, and the fields
of the records: <https://docs.mlcommons.org/croissant/docs/croissant-spec.html>. It is written by hand, since
mlcroissant needs a newer Python than TensorFlow 1.15, and checked by mlcroissant where that is installed.
"""

import concurrent.futures
import json
import logging
import os
import re
from typing import Any, Dict, List, Mapping

from console.errors import CommandError
from console.processes import usable_cores
from data import dataset_info, files, records, remote
from data.sources import Source
from data.tar.layout import IMAGE_EXTENSIONS, label_of

FILE_NAME = 'croissant.json'
CONFORMS_TO = 'http://mlcommons.org/croissant/1.0'
_SCHEMA = 'https://schema.org/'
_TERMS = (
    'citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset '
    'jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source '
    'subField transform'
)
# The specification's, whole: mlcroissant warns of another.
_CONTEXT = {
    '@language': 'en',
    '@vocab': _SCHEMA,
    'cr': 'http://mlcommons.org/croissant/',
    'dct': 'http://purl.org/dc/terms/',
    'rai': 'http://mlcommons.org/croissant/RAI/',
    'sc': _SCHEMA,
    'conformsTo': 'dct:conformsTo',
    'data': {'@id': 'cr:data', '@type': '@json'},
    'dataType': {'@id': 'cr:dataType', '@type': '@vocab'},
    'examples': {'@id': 'cr:examples', '@type': '@json'},
    **{term: f'cr:{term}' for term in _TERMS.split()},
}
# Beside the image and its label: the fields of ImageNet's layout. Those of boxes are lists.
_TYPES = {
    **{f'image/{name}': 'sc:Text' for name in ('class/synset', 'class/text', 'colorspace', 'filename', 'format')},
    **{f'image/{name}': 'sc:Integer' for name in ('channels', 'height', 'width', 'object/bbox/label')},
    **{f'image/object/bbox/{name}': 'sc:Float' for name in ('xmax', 'xmin', 'ymax', 'ymin')},
}
_ENCODINGS = {'tar': 'application/x-tar', 'tfrecord': 'application/x-tfrecord'}
_CLASS = {'references': {'field': {'@id': 'classes/label'}}}


def check_source(source: Source) -> dataset_info.DatasetInfo:
    """The content of `dataset.json`, which a description needs; raises DataError without it."""
    info = dataset_info.read(source.data_dir) if source.data_dir else None
    if not info:
        path = os.path.join(source.data_dir, dataset_info.FILE_NAME)
        raise records.DataError(f'--croissant: {path} is missing, which has the name, the origin and the classes.')
    return info


def write(
    source: Source, info: dataset_info.DatasetInfo, report: Dict[str, Any], given: Mapping[str, str]
) -> Dict[str, Any]:
    """Writes the description of an audited data set into its folder.

    Args:
      source: of the records.
      info: the content of `dataset.json`.
      report: of the audit.
      given: further properties of the data set, such as `license`, by their names in Croissant.

    Returns:
      The `path` of the file, and whether mlcroissant has `checked` it, which may not be installed.

    Raises:
      DataError: a file is not in the folder of the data set.
      RemoteError: a file cannot be read or written.
    """
    path = os.path.join(source.data_dir, FILE_NAME)
    text = json.dumps(_described(source, info, report, given), indent=2) + '\n'
    files.write_whole(path, text)
    return {'path': path, 'checked': _check(path, text)}


def _described(
    source: Source, info: dataset_info.DatasetInfo, report: Dict[str, Any], given: Mapping[str, str]
) -> Dict[str, Any]:
    classes = [{'classes/label': label, 'classes/name': name} for label, name in enumerate(info.class_names)]
    distribution: List[Dict[str, Any]] = []
    of_classes = [_field('classes', 'label', 'sc:Integer'), _field('classes', 'name', 'sc:Text')]
    record_sets = [{**_record_set('classes', of_classes), 'key': {'@id': 'classes/label'}, 'data': classes}]
    for split in (records.TRAIN, records.VALIDATION):
        found = report['splits'][split]
        paths = source.find(split) if found['files'] else []
        if paths:
            objects = _file_objects(source, paths)
            make = _of_tar if source.data_format == 'tar' else _of_tfrecords
            sets, of_split = make(source, split, [each['@id'] for each in objects], found['fields'])
            distribution += [*objects, *sets]
            record_sets += of_split
    return {
        '@context': _CONTEXT,
        '@type': 'sc:Dataset',
        'conformsTo': CONFORMS_TO,
        'name': info.name,
        'description': f'{info.source}; fingerprint of images and labels {report["fingerprint"]["taken"]}',
        **given,
        'distribution': distribution,
        'recordSet': record_sets,
    }


def _file_objects(source: Source, paths: List[str]) -> List[Dict[str, Any]]:
    names = [os.path.relpath(path, source.data_dir) for path in paths]
    outside = [path for path, name in zip(paths, names) if name.startswith('..')]
    if outside:
        raise records.DataError(f'--croissant: {outside[0]}: is not in {source.data_dir}.')
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        digests = pool.map(files.sha256, paths)
    return [
        {
            '@type': 'cr:FileObject',
            '@id': name,
            'name': name,
            'contentUrl': name,
            'contentSize': f'{remote.size(path)} B',
            'encodingFormat': _ENCODINGS[source.data_format],
            'sha256': digest,
        }
        for path, name, digest in zip(paths, names, digests)
    ]


def _of_tfrecords(source: Source, split: str, names: List[str], fields: Mapping[str, int]) -> Any:
    """The set of a split's record files, and its records with the fields that the audit has found."""
    patterns = sorted({re.sub(r'\d+', '*', name) for name in names})
    file_set = _file_set(f'{split}-files', _ENCODINGS[source.data_format], patterns)
    types = {**_TYPES, source.fields.image: 'sc:ImageObject', source.fields.label: 'sc:Integer'}

    def field(name: str) -> Dict[str, Any]:
        # With an offset, the label is not the number of its class.
        is_class = name == source.fields.label and not source.fields.label_offset
        more = {**({'repeated': True} if '/bbox/' in name else {}), **(_CLASS if is_class else {})}
        return {**_field(split, name, types[name], file_set['@id'], {'column': name}), **more}

    return [file_set], [_record_set(split, [field(name) for name in fields if name in types])]


def _of_tar(source: Source, split: str, names: List[str], fields: Mapping[str, int]) -> Any:
    """The sets of the images and of the labels in a split's shards, with two sets of records that share their keys.

    Labels in a key of a JSON file are left out.
    """
    kinds = [(split, 'image', 'sc:ImageObject', 'image/*', IMAGE_EXTENSIONS)]
    label = label_of(source.fields.label)
    if not label.key:
        kinds.append((f'{split}-labels', 'label', 'sc:Integer', 'text/plain', (label.extension,)))
    sets, record_sets = [], []
    for name, kind, data_type, encoding, extensions in kinds:
        file_set = _file_set(f'{name}-files', encoding, [f'*.{extension}' for extension in extensions])
        sets.append({**file_set, 'containedIn': [{'@id': name} for name in names]})
        key = _field(name, 'key', 'sc:Text', file_set['@id'], {'fileProperty': 'filename'})
        key['source']['transform'] = {'regex': r'^([^.]+)\.'}
        record_sets.append(
            _record_set(name, [key, _field(name, kind, data_type, file_set['@id'], {'fileProperty': 'content'})])
        )
    return sets, record_sets


def _file_set(name: str, encoding: str, patterns: List[str]) -> Dict[str, Any]:
    return {'@type': 'cr:FileSet', '@id': name, 'name': name, 'encodingFormat': encoding, 'includes': patterns}


def _record_set(name: str, fields: List[Dict[str, Any]]) -> Dict[str, Any]:
    return {'@type': 'cr:RecordSet', '@id': name, 'name': name, 'field': fields}


def _field(record_set: str, name: str, data_type: str, file_set: str = '', extract: Any = None) -> Dict[str, Any]:
    source = {'source': {'fileSet': {'@id': file_set}, 'extract': extract}} if file_set else {}
    return {'@type': 'cr:Field', '@id': f'{record_set}/{name}', 'name': name, 'dataType': data_type, **source}


def _check(path: str, text: str) -> bool:
    """Lets mlcroissant check a description; returns False if it is not installed."""
    try:
        import mlcroissant
    except ImportError:
        return False
    # It warns of the properties that were not given, which the command says itself.
    logging.getLogger('absl').setLevel(logging.ERROR)
    try:
        mlcroissant.Dataset(json.loads(text))
    except mlcroissant.ValidationError as error:
        raise CommandError(f'{path}: mlcroissant refuses it: {error}')
    return True
