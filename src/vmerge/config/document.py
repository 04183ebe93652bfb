"""YAML text to plain data, with the line of every key.

Knows: YAML, and what of it is refused: duplicate keys (the second would silently win), keys that are not text, tags
that make objects, and documents that are small as text but huge as data. Never knows: which keys a workflow has.
Used by ``loading.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

MAX_FILE_BYTES = 256 * 1024
"""A workflow of a hundred streams is 20 kB; a larger file is some other file."""

MAX_NODES = 20_000
"""Aliases count each time they are used, so that a few lines of them cannot fill the memory."""

_MAP_TAG = "tag:yaml.org,2002:map"
_SEQUENCE_TAG = "tag:yaml.org,2002:seq"
_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE_TAG = "tag:yaml.org,2002:merge"

Place = tuple[str | int, ...]
"""The keys and indexes that lead to a value."""


class DocumentError(Exception):
    """The text is no usable YAML document: what, where (a line, from 1), and what to do about it."""

    def __init__(self, text: str, *, line: int | None, hint: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Document:
    """The data of one YAML file, and the line of each place in it."""

    data: object
    lines: Mapping[Place, int]

    def line_of(self, place: Place) -> int | None:
        """Return the line of a place, or of what encloses it."""
        for length in range(len(place), -1, -1):
            line = self.lines.get(place[:length])
            if line is not None:
                return line
        return None


def parse_document(text: str) -> Document:
    """Parse one YAML document.

    Raises:
        DocumentError: it is not valid, or of a kind that is refused.
    """
    try:
        loader = yaml.SafeLoader(text)
    except yaml.YAMLError as error:
        raise DocumentError("is not valid YAML: it holds control characters", line=None) from error
    try:
        root = loader.get_single_node()
        builder = _Builder(loader)
        return Document(None if root is None else builder.build(root, ()), builder.lines)
    except yaml.MarkedYAMLError as error:
        raise _from_yaml(error) from error
    except yaml.YAMLError as error:
        raise DocumentError(f"is not valid YAML: {str(error).splitlines()[0]}", line=None) from error
    except RecursionError as error:
        raise DocumentError("is nested too deeply", line=None) from error
    finally:
        loader.dispose()


def _from_yaml(error: yaml.MarkedYAMLError) -> DocumentError:
    mark = error.problem_mark or error.context_mark
    parts = [part for part in (error.context, error.problem) if part]
    hint = "Check indentation, colons and quotes there."
    if (error.context is not None and "alias" in error.context) or "undefined alias" in (error.problem or ""):
        hint = 'A text that begins with * must stand in quotes, for example "*.*".'
    return DocumentError(
        f"is not valid YAML: {', '.join(parts) or 'unreadable'}", line=mark.line + 1 if mark else None, hint=hint
    )


class _Builder:
    """Turns nodes into dicts, lists and scalars; each node's place is noted with its line."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader
        self._open: set[int] = set()
        self._count = 0
        self.lines: dict[Place, int] = {}

    def build(self, node: Node, place: Place) -> object:
        self.lines.setdefault(place, _line(node))
        self._count += 1
        if self._count > MAX_NODES:
            raise DocumentError(f"holds more than {MAX_NODES} values", line=_line(node))
        if isinstance(node, ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            raise DocumentError("has an alias that contains itself", line=_line(node))
        self._open.add(id(node))
        try:
            return self._collection(node, place)
        finally:
            self._open.discard(id(node))

    def _collection(self, node: Node, place: Place) -> object:
        if isinstance(node, SequenceNode) and node.tag == _SEQUENCE_TAG:
            return [self.build(item, (*place, index)) for index, item in enumerate(node.value)]
        if isinstance(node, MappingNode) and node.tag == _MAP_TAG:
            return self._mapping(node, place)
        raise DocumentError(f"has a tag that is not allowed here ({node.tag})", line=_line(node))

    def _mapping(self, node: MappingNode, place: Place) -> dict[str, object]:
        built: dict[str, object] = {}
        own: set[str] = set()
        merged: list[Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                merged.extend(_merge_sources(value_node))
                continue
            key = self._key(key_node)
            if key in own:
                raise DocumentError(
                    f"has the key `{key}` twice in one place",
                    line=_line(key_node),
                    hint="Only one of them could count: remove or rename one.",
                )
            own.add(key)
            self.lines.setdefault((*place, key), _line(key_node))
            built[key] = self.build(value_node, (*place, key))
        for source in merged:
            inherited = self.build(source, place)
            assert isinstance(inherited, dict)
            built = inherited | built
        return built

    def _key(self, node: Node) -> str:
        if not isinstance(node, ScalarNode):
            raise DocumentError(
                "has a key that is not text", line=_line(node), hint="Put a text that begins with { or [ in quotes."
            )
        if node.tag != _TEXT_TAG:
            kind = node.tag.rpartition(":")[2]
            raise DocumentError(
                f"has a key that YAML reads as {kind}, not as text: {node.value or '(nothing)'}",
                line=_line(node),
                hint=f'Put it in quotes: "{node.value}".',
            )
        return str(node.value)

    def _scalar(self, node: ScalarNode) -> object:
        try:
            return self._loader.construct_object(node)
        except (ValueError, OverflowError, KeyError, IndexError) as error:
            raise DocumentError(f"has a value that YAML cannot read as {node.tag}", line=_line(node)) from error


def _merge_sources(node: Node) -> Iterator[Node]:
    """Yield the mappings behind a ``<<`` key; earlier ones win."""
    sources = node.value if isinstance(node, SequenceNode) else [node]
    for source in sources:
        if not isinstance(source, MappingNode):
            raise DocumentError("has a << that is no mapping", line=_line(node))
        yield source


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1
