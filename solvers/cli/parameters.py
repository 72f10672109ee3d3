"""Hyper-parameters of a solver as command-line options, read off its fields and its docstring."""

from __future__ import annotations

import inspect
import re
import types
import typing
from dataclasses import MISSING, fields
from typing import Any

import click

_ENTRY = re.compile(r"^(\w+(?:, \w+)*) :\s*(.*)$")
_CHOICES = re.compile(r"^\{([^}]*)\}")
_QUOTED = re.compile(r"[\"'](\w[\w-]*)[\"']")


class AnyOf(click.ParamType):
    """A value of one of several types, tried in the order int, float, bool, word."""

    name = "value"

    def __init__(self, kinds: set[type], words: tuple[str, ...]) -> None:
        self.kinds, self.words = kinds, words
        self.shown = [*words, *(["true", "false"] if bool in kinds else [])]

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        for kind in (int, float):
            if kind in self.kinds:
                try:
                    return kind(value)
                except ValueError:
                    pass
        if bool in self.kinds and value in ("true", "false"):
            return value == "true"
        if str in self.kinds and (not self.words or value in self.words):
            return value
        wanted = [
            "an integer" if int in self.kinds else "",
            "a number" if float in self.kinds else "",
            *self.shown,
        ]
        self.fail(f"{value!r} is not {' or '.join(word for word in wanted if word)}.", param, ctx)

    def get_metavar(self, param: Any, ctx: Any = None) -> str:
        numeric = "INTEGER" if int in self.kinds else "FLOAT" if float in self.kinds else ""
        return "[" + "|".join([*self.shown, *([numeric] if numeric else [])]) + "]"


def parameter_docs(cls: type) -> dict[str, tuple[str, str]]:
    """Type text and description of every parameter, from the docstrings of `cls` and its bases."""
    docs: dict[str, tuple[str, str]] = {}
    for base in reversed(cls.__mro__):
        docs.update(_parameters_section(base.__dict__.get("__doc__") or ""))
    return docs


def _parameters_section(docstring: str) -> dict[str, tuple[str, str]]:
    lines = inspect.cleandoc(docstring).splitlines()
    docs: dict[str, tuple[str, str]] = {}
    names: list[str] = []
    inside = False
    for line, following in zip(lines, [*lines[1:], ""]):
        if re.fullmatch(r"-{3,}", following.strip()):
            inside = line.strip() == "Parameters"
            names = []
            continue
        entry = _ENTRY.match(line) if inside else None
        if entry:
            names = entry[1].split(", ")
            docs.update(dict.fromkeys(names, (entry[2], "")))
        elif names and line.startswith("    "):
            for name in names:
                kind, text = docs[name]
                docs[name] = (kind, f"{text} {line.strip()}".strip())
        elif line.strip() and not re.fullmatch(r"-{3,}", line.strip()):
            names = []
    return docs


def parameter_options(cls: type, defaults: dict[str, Any], hidden: tuple[str, ...]) -> list[click.Option]:
    """One click option per field of the dataclass `cls` that a command line can express."""
    hints = typing.get_type_hints(cls)
    docs = parameter_docs(cls)
    options = []
    for item in fields(cls):
        if item.name in hidden or not item.init:
            continue
        kind_text, text = docs.get(item.name, ("", ""))
        kind = _click_type(hints[item.name], kind_text)
        if kind is None:
            continue
        flag = "--" + item.name.replace("_", "-")
        settings: dict[str, Any] = {"type": kind, "help": _plain(text)}
        if item.name in defaults:
            settings["default"] = defaults[item.name]
        elif item.default is not MISSING:
            settings["default"] = item.default
        elif item.default_factory is not MISSING:
            settings["default"] = item.default_factory()
        else:
            settings["required"] = True  # no default at all: None would count as one
        settings["show_default"] = settings.get("default") is not None
        options.append(
            click.Option([f"{flag}/--no-{flag[2:]}" if kind is bool else flag, item.name], **settings)
        )
    return options


def _click_type(hint: Any, kind_text: str) -> Any:
    """The click type of a field, or None when a command line cannot express it."""
    kind_text = kind_text.partition(", default")[0]
    parts = set(typing.get_args(hint)) if _is_union(hint) else {hint}
    parts.discard(type(None))
    if hint is Any:  # then the docstring decides
        known = {"int": int, "float": float, "bool": bool}
        parts = {kind for word, kind in known.items() if re.search(rf"\b{word}\b", kind_text)}
        parts |= {str} if _QUOTED.search(kind_text) else set()
    literals = tuple(
        a for part in parts if typing.get_origin(part) is typing.Literal for a in typing.get_args(part)
    )
    simple = {part for part in parts if part in (int, float, str, bool)}
    choices = _CHOICES.match(kind_text)
    if literals and not simple:
        return click.Choice(literals)
    if literals:
        return AnyOf(simple | {str}, literals)
    if simple == {bool}:
        return bool
    if simple == {str}:
        words = tuple(_QUOTED.findall(choices[1] if choices else kind_text))
        return click.Choice(words) if words else click.STRING
    if simple in ({int}, {float}):
        return click.INT if simple == {int} else click.FLOAT
    if simple:
        return AnyOf(simple, tuple(_QUOTED.findall(kind_text)) if str in simple else ())
    return None


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _plain(text: str) -> str:
    """Docstring markup as plain words."""
    text = re.sub(r":\w+:`([^`]*)`", r"\1", text).replace("``", "").replace("`", "")
    text = re.sub(r"\\le\b", "<=", re.sub(r"\\ge\b", ">=", text))
    return re.sub(r"\\([A-Za-z]+)", r"\1", text)
