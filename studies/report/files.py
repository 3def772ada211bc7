"""Writes the report of a comparison: a page, and a Markdown file with pictures."""

import os

from console.tensorflow_versions import tf
from data import remote
from data.files import write_whole
from studies.report.runs import Comparison

PAGE_FILE = 'report.html'
MARKDOWN_FILE = 'report.md'


def write(out: str, comparison: Comparison) -> None:
    """Writes the page, the Markdown file and its pictures, and replaces those of an earlier report.

    Runs that have not started, are still running or have failed are included, with their state.

    Args:
      out: the folder, created if missing; it may be at gs:// or s3://.
      comparison: the runs to report.

    Raises:
      RemoteError: a remote folder cannot be written to.
      tf.errors.OpError: a local folder cannot be written to.
    """
    # Needs the packages of an extra, which a command without a report does not need.
    from studies.report import findings, html, markdown

    found = findings.find(comparison)
    page, text = html.page(found), markdown.text(found)
    pictures = markdown.pictures(found)
    with remote.explained(out, remote.WRITE):
        tf.io.gfile.makedirs(out)
    for name, content in pictures.items():
        write_whole(os.path.join(out, name), content)
    write_whole(os.path.join(out, MARKDOWN_FILE), text)
    write_whole(os.path.join(out, PAGE_FILE), page)
