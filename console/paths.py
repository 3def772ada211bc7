"""Expands `~` in the paths of a command line, which a shell leaves in `--flag=~/folder` and within quotes."""

import os
import re
import sys
from typing import Any, Iterable, List, Optional, Sequence, Tuple

from compat.errors import CommandError
from compat.messages import full, meant

# A flag with its value, or a value alone; the value begins with a tilde.
_WORD = re.compile(r'(-{1,2}\w[\w-]*=)?(~.*)', re.DOTALL)
# Stores that some versions of TensorFlow reach; not the schemes of addresses, such as https.
_STORES = ('s3', 'hdfs', 'viewfs', 'har')
_STORE = re.compile(rf"(?:^|(?<=[\s,'\"=]))({'|'.join(_STORES)})://[^\s,'\"]*")


def expanded(argv: Optional[Sequence[str]] = None) -> List[str]:
    """The words of a command line, with the home folder in place of a leading `~` or `~user` of a word or a value.

    A `~` elsewhere, and the name of an unknown user, stay as they are: `./~` names a file `~`. The default is this
    process's command line, without the program's name.
    """
    return [_expanded(word) for word in (sys.argv[1:] if argv is None else argv)]


def _expanded(word: str) -> str:
    match = _WORD.fullmatch(word)
    return (match.group(1) or '') + os.path.expanduser(match.group(2)) if match else word


def check_folder(path: str, flag: str = '') -> None:
    """Raises CommandError for a missing local folder; paths with a scheme, such as gs://, are not looked up.

    Commands call this before they load TensorFlow, which takes seconds.
    """
    if path and '://' not in path and not os.path.exists(path):
        raise CommandError(f'{f"--{flag}=" * bool(flag)}{full(path)}: no such folder.{meant_path(path)}')


def meant_path(path: str) -> str:
    """A question that suggests a path similar to a missing local one, in the same folder; empty if none is similar."""
    folder, name = os.path.split(path.rstrip(os.sep))
    try:
        names = os.listdir(folder or '.')
    except (OSError, ValueError):
        return ''
    return meant(name, names, os.path.join(folder, '')) if name else ''


def check_stores(values: Iterable[Any]) -> None:
    """Raises CommandError if a flag's value, a text or a list, names a store that this TensorFlow cannot reach.

    The message has alternatives. TensorFlow is loaded only if a value names a store.
    """
    texts = [text for value in values for text in (value if isinstance(value, (list, tuple)) else [value])]
    named = [found for text in texts if isinstance(text, str) for found in _STORE.finditer(text)]
    if not named:
        return
    version, schemes = _tensorflow()
    for found in named:
        scheme, place = found.group(1), full(found.group())
        if scheme not in schemes:
            copy = 'aws s3 sync' if scheme == 's3' else 'hadoop fs -copyToLocal'
            mount = ', mount the bucket as a folder (mount-s3 for reading, rclone mount)' if scheme == 's3' else ''
            raise CommandError(
                f'{place}: TensorFlow {version} has no {scheme}://, which TensorFlow 1.15 has. Copy the files to a '
                f'folder of this machine ({copy} {place} FOLDER) or to gs://{mount}, or use TensorFlow 1.15.'
            )


def _tensorflow() -> Tuple[str, Sequence[str]]:
    """The version of TensorFlow, and the schemes of the stores that it reaches."""
    from compat import tf

    # 1.15 cannot list its schemes, and has all of these.
    return tf.__version__, getattr(tf.io.gfile, 'get_registered_schemes', lambda: _STORES)()
