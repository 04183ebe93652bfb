"""Workflow files: YAML → frozen models, or one ``ConfigError`` that says file, line, what and what to do.

Knows: the format of a workflow file and where its secrets are. Never knows: servers (nothing is contacted here). The
only importer of pydantic, yaml and sqlglot. Used by the command line and ``hosting``.

In here: ``document`` (YAML text → data and lines), ``workflow`` (the models, and with them the reference of the keys),
``rules`` (the models of what is said of single tables), ``section`` (what they all have in common), ``secrets``
(passwords), ``predicates`` and ``filter_words`` (the text of row filters), ``loading`` (files → ``Workflow``, and the
messages), ``differences`` (between two loads of a folder).
"""

from vmerge.config.differences import FolderChanges, compare_folders
from vmerge.config.loading import load_folder, load_workflow
from vmerge.config.secrets import token_from_file
from vmerge.config.workflow import Limits, Server, Stream, Target, TlsSettings, Workflow

__all__ = [
    "FolderChanges",
    "Limits",
    "Server",
    "Stream",
    "Target",
    "TlsSettings",
    "Workflow",
    "compare_folders",
    "load_folder",
    "load_workflow",
    "token_from_file",
]
