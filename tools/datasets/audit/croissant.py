"""Describes a data set in Croissant 1.0, the JSON-LD that archives and searches of data sets read.

`croissant.json` stands beside `dataset.json`. It has every file with its size and SHA-256, the classes, and the fields
of the records: <https://docs.mlcommons.org/croissant/docs/croissant-spec.html>. This module writes it itself, because
  mlcroissant needs a newer Python than TensorFlow 1.15; mlcroissant checks the result if it is installed.
"""

import concurrent.futures
import json
import logging
import os
import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from compat.errors import CommandError
from console.processes import usable_cores
from data import dataset_info, files, records, remote
from data.sources import Source
from data.tar.layout import IMAGE_EXTENSIONS, label_of

FILE_NAME = 'croissant.json'
_TERMS = (
    'citeAs column equivalentProperty extract field fileObject fileProperty fileSet format includes isLiveDataset '
    'jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate separator source '
    'subField transform'
)
# The complete context of the specification: mlcroissant warns about any other.
_CONTEXT = {
    '@language': 'en',
    '@vocab': 'https://schema.org/',
    'cr': 'http://mlcommons.org/croissant/',
    'dct': 'http://purl.org/dc/terms/',
    'rai': 'http://mlcommons.org/croissant/RAI/',
    'sc': 'https://schema.org/',
    'conformsTo': 'dct:conformsTo',
    'data': {'@id': 'cr:data', '@type': '@json'},
    'dataType': {'@id': 'cr:dataType', '@type': '@vocab'},
    'examples': {'@id': 'cr:examples', '@type': '@json'},
    **{term: f'cr:{term}' for term in _TERMS.split()},
}
_ENCODINGS = {'tar': 'application/x-tar', 'tfrecord': 'application/x-tfrecord'}
# The fields of ImageNet's layout besides the image and its label. Fields of boxes are lists.
_TYPES = {
    **{f'image/{name}': 'sc:Text' for name in ('class/synset', 'class/text', 'colorspace', 'filename', 'format')},
    **{f'image/{name}': 'sc:Integer' for name in ('channels', 'height', 'width', 'object/class/label')},
    **{f'image/object/bbox/{name}': 'sc:Float' for name in ('xmax', 'xmin', 'ymax', 'ymin')},
}

Node = Dict[str, Any]


def description_of(source: Source) -> dataset_info.DatasetInfo:
    """The content of `dataset.json`, which Croissant needs; raises DataError without it."""
    info = dataset_info.read(source.data_dir) if source.data_dir else None
    if not info:
        path = os.path.join(source.data_dir, dataset_info.FILE_NAME)
        raise records.DataError(f'--croissant: {path} is missing, which has the name, the origin and the classes.')
    return info


def write(source: Source, info: dataset_info.DatasetInfo, report: Dict[str, Any], given: Mapping[str, str]) -> Node:
    """Writes the description of an audited data set into its folder.

    `report` is the audit's report; `given` has further properties by their names in Croissant, such as `license`.
    Returns the `path` of the file, and whether mlcroissant has `checked` it. Raises DataError if a file is not in the
    folder.
    """
    classes = [{'classes/label': label, 'classes/name': name} for label, name in enumerate(info.class_names)]
    fields = [_field('classes', 'label', 'sc:Integer'), _field('classes', 'name', 'sc:Text')]
    distribution: List[Node] = []
    record_sets = [{**_record_set('classes', fields), 'key': {'@id': 'classes/label'}, 'data': classes}]
    for split, found in report['splits'].items():
        objects = _file_objects(source, source.find(split)) if found['files'] else []
        if objects:
            of_split = _of_tar if source.data_format == 'tar' else _of_tfrecords
            file_sets, more = of_split(source, split, [each['@id'] for each in objects], [*found['fields']])
            distribution += [*objects, *file_sets]
            record_sets += more
    description = {
        '@context': _CONTEXT,
        '@type': 'sc:Dataset',
        'conformsTo': 'http://mlcommons.org/croissant/1.0',
        'name': info.name,
        'description': f'{info.source}; fingerprint of images and labels {report["fingerprint"]["taken"]}',
        **given,
        'distribution': distribution,
        'recordSet': record_sets,
    }
    path = os.path.join(source.data_dir, FILE_NAME)
    files.write_whole(path, json.dumps(description, indent=2) + '\n')
    return {'path': path, 'checked': _check(path, description)}


def _file_objects(source: Source, paths: List[str]) -> List[Node]:
    names = [os.path.relpath(path, source.data_dir) for path in paths]
    outside = [path for path, name in zip(paths, names) if name.startswith('..')]
    if outside:
        raise records.DataError(f'--croissant: {outside[0]}: is not in {source.data_dir}.')
    encoding = _ENCODINGS[source.data_format]
    with concurrent.futures.ThreadPoolExecutor(usable_cores()) as pool:
        return [
            {
                **_node('FileObject', name, contentUrl=name, encodingFormat=encoding),
                'contentSize': f'{remote.size(path)} B',
                'sha256': digest,
            }
            for path, name, digest in zip(paths, names, pool.map(files.sha256, paths))
        ]


def _of_tfrecords(source: Source, split: str, names: List[str], found: List[str]) -> Tuple[List[Node], List[Node]]:
    """The set of a split's record files, and its records with the fields that the audit has found."""
    patterns = sorted({re.sub(r'\d+', '*', name) for name in names})
    file_set = _file_set(f'{split}-files', _ENCODINGS['tfrecord'], patterns)
    types = {**_TYPES, source.fields.image: 'sc:ImageObject', source.fields.label: 'sc:Integer'}
    fields = {name: _field(split, name, types[name], file_set, column=name) for name in found if name in types}
    for name in (name for name in fields if '/object/' in name):
        fields[name]['repeated'] = True
    # With an offset, the label is not the number of its class.
    if not source.fields.label_offset:
        fields[source.fields.label]['references'] = {'field': {'@id': 'classes/label'}}
    return [file_set], [_record_set(split, [*fields.values()])]


def _of_tar(source: Source, split: str, names: List[str], found: List[str]) -> Tuple[List[Node], List[Node]]:
    """The sets of the images and of the labels in a split's shards, with two sets of records that share their keys.

    Labels in a key of a JSON file are left out.
    """
    kinds: List[Tuple[str, str, str, str, Sequence[str]]] = [
        (split, 'image', 'sc:ImageObject', 'image/*', IMAGE_EXTENSIONS)
    ]
    label = label_of(source.fields.label)
    if not label.key:
        kinds.append((f'{split}-labels', 'label', 'sc:Integer', 'text/plain', (label.extension,)))
    file_sets, record_sets = [], []
    for name, kind, data_type, encoding, extensions in kinds:
        file_set = _file_set(f'{name}-files', encoding, [f'*.{extension}' for extension in extensions])
        file_sets.append({**file_set, 'containedIn': [{'@id': shard} for shard in names]})
        key = _field(name, 'key', 'sc:Text', file_set, fileProperty='filename')
        key['source']['transform'] = {'regex': r'^([^.]+)\.'}
        record_sets.append(_record_set(name, [key, _field(name, kind, data_type, file_set, fileProperty='content')]))
    return file_sets, record_sets


def _node(kind: str, name: str, **properties: Any) -> Node:
    return {'@type': f'cr:{kind}', '@id': name, 'name': name, **properties}


def _file_set(name: str, encoding: str, patterns: Sequence[str]) -> Node:
    return _node('FileSet', name, encodingFormat=encoding, includes=patterns)


def _record_set(name: str, fields: List[Node]) -> Node:
    return _node('RecordSet', name, field=fields)


def _field(record_set: str, name: str, data_type: str, file_set: Any = None, **extract: str) -> Node:
    source = {'source': {'fileSet': {'@id': file_set['@id']}, 'extract': extract}} if file_set else {}
    return {**_node('Field', f'{record_set}/{name}', dataType=data_type), 'name': name, **source}


def _check(path: str, description: Node) -> bool:
    """Lets mlcroissant check a description; returns False if it is not installed."""
    try:
        import mlcroissant
    except ImportError:
        return False
    # mlcroissant warns about properties that were not given; the command itself lists them.
    logging.getLogger('absl').setLevel(logging.ERROR)
    try:
        mlcroissant.Dataset(description)
    except mlcroissant.ValidationError as error:
        raise CommandError(f'{path}: mlcroissant refuses it: {error}')
    return True
