"""The report of a comparison: a page, and a Markdown file with pictures."""

import os

import tensorflow as tf

from data import remote
from inception_v3.model_dir.files import write_whole
from studies.report import findings, html, markdown
from studies.report.runs import Comparison

PAGE_FILE = 'report.html'
MARKDOWN_FILE = 'report.md'


def write(out: str, comparison: Comparison) -> None:
    """Writes the page, the Markdown file and its pictures, in place of those that are there.

    Runs that have not begun, go on or have failed are named as such, and are no reason not to write.

    Args:
      out: the folder, made if need be; it may be at gs:// or s3://.
      comparison: what is reported.

    Raises:
      RemoteError: the folder cannot be written to.
      tf.errors.OpError: the same of a local one.
    """
    found = findings.find(comparison)
    page, text = html.page(found), markdown.text(found)
    pictures = markdown.pictures(found)
    with remote.explained(out, remote.WRITE):
        tf.io.gfile.makedirs(out)
        for name, content in pictures.items():
            with tf.io.gfile.GFile(os.path.join(out, name), 'wb') as file:
                file.write(content)
    write_whole(os.path.join(out, MARKDOWN_FILE), text)
    write_whole(os.path.join(out, PAGE_FILE), page)
