"""Where claims are found: every module of `theory_checks.claims` offers a list ``CLAIMS``."""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import pkgutil
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from theory_checks.claim import Claim


class UnknownClaimError(ValueError):
    """A name, pattern or tag selects no claim."""


@dataclass(frozen=True)
class Registry:
    """Claims by name, and the modules they come from.

    Attributes
    ----------
    modules : tuple of str
        Importable names; another process finds the same claims from them.
    claims : dict of str to Claim
        In the order of the modules and of their lists.
    unreadable : dict of str to str
        Modules that could not be read, with the traceback.
    """

    modules: tuple[str, ...]
    claims: dict[str, Claim]
    unreadable: dict[str, str] = field(default_factory=dict)

    def select(self, patterns: Iterable[str] = (), tags: Iterable[str] = ()) -> list[Claim]:
        """Claims that match one of `patterns` and carry one of `tags` (all, where none are given).

        A pattern is a name, a glob (``*slope*``) or the part of a name before a dot (``local_gd``).

        Raises
        ------
        UnknownClaimError
            When a pattern or a tag matches nothing; the message names close matches.
        """
        patterns, tags = list(patterns), list(tags)
        for pattern in patterns:
            if not any(matches(pattern, name) for name in self.claims):
                close = difflib.get_close_matches(pattern, list(self.claims), n=3, cutoff=0.5)
                hint = f"; close: {', '.join(close)}" if close else "; --list shows all"
                raise UnknownClaimError(f"no claim matches {pattern!r}{hint}")
        known = sorted({tag for claim in self.claims.values() for tag in claim.tags})
        for tag in tags:
            if tag not in known:
                raise UnknownClaimError(f"no claim has the tag {tag!r}; tags: {', '.join(known) or 'none'}")
        return [
            claim
            for name, claim in self.claims.items()
            if (not patterns or any(matches(pattern, name) for pattern in patterns))
            and (not tags or any(tag in claim.tags for tag in tags))
        ]


def matches(pattern: str, name: str) -> bool:
    """Whether `pattern` (name, glob or leading part) selects the claim `name`."""
    return fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern.rstrip(".") + ".")


def claim_modules() -> tuple[str, ...]:
    """Importable names of all modules of `theory_checks.claims`, in alphabetical order."""
    package = importlib.import_module("theory_checks.claims")
    found = pkgutil.iter_modules(package.__path__, prefix="theory_checks.claims.")
    return tuple(sorted(info.name for info in found if not info.name.rpartition(".")[2].startswith("_")))


def discover(modules: Sequence[str] | None = None) -> Registry:
    """Read the claims of `modules` (importable names; those of the package by default).

    A module that raises is noted in `Registry.unreadable`, and the others are read.

    Raises
    ------
    ValueError
        When two claims have one name.
    """
    names = claim_modules() if modules is None else tuple(modules)
    claims: dict[str, Claim] = {}
    unreadable: dict[str, str] = {}
    origin: dict[str, str] = {}
    for name in names:
        try:
            found = list(importlib.import_module(name).CLAIMS)
            for claim in found:
                if not isinstance(claim, Claim):
                    raise TypeError(f"CLAIMS of {name} must hold Claim objects, got {claim!r}.")
        except Exception:
            unreadable[name] = traceback.format_exc()
            continue
        for claim in found:
            if claim.name in claims:
                raise ValueError(f"claim {claim.name!r} is in {origin[claim.name]} and in {name}.")
            claims[claim.name], origin[claim.name] = claim, name
    return Registry(names, claims, unreadable)
