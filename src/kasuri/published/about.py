"""Who publishes a release, and when: words that its publisher declares.

*Privacy.* Declared text, never derived from the input or from the run: the one date is that of publication, as the
publisher writes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date
from typing import Any

from kasuri import names
from kasuri.errors import DomainError, raise_faults

_LANGUAGE = re.compile("[a-z]{2,3}(-[A-Za-z0-9]{2,8})*")
_LONGEST = 500


@dataclass(frozen=True)
class About:
    """Words on a release for its readers; "" where nothing is said. `title_en` and `title_ja` are its title on pages in
    these languages, where `title` is in another."""

    title: str = ""
    title_en: str = ""
    title_ja: str = ""
    publisher: str = ""
    contact: str = ""
    source: str = ""
    licence: str = ""
    published: str = ""
    language: str = ""

    @classmethod
    def of(cls, words: Mapping[str, str]) -> About:
        """The words of a mapping such as `{"title": "...", "publisher": "..."}`; DomainError names every fault.

        >>> About.of({"publisher": "Statistics Bureau", "published": "2026-11-18"}).to_json()
        {'publisher': 'Statistics Bureau', 'published': '2026-11-18'}
        """
        known = [field.name for field in fields(cls)]
        if not isinstance(words, Mapping) or not words.keys() <= set(known):
            raise DomainError(f"about is a mapping of {', '.join(known)} to text; leave out what is not said")
        faults = [fault for name in known if name in words for fault in _faults(name, words[name])]
        raise_faults(DomainError, faults)
        return cls(**words)

    def to_json(self) -> dict[str, str]:
        """The words that are said, by name."""
        named: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: text for name, text in named.items() if text}


def _faults(name: str, text: object) -> list[str]:
    """What is wrong with one of the words."""
    found = names.faults(text, f"about.{name}")
    if found or not isinstance(text, str):
        return found
    if not text.strip() or len(text) > _LONGEST:
        return [f"about.{name} must be text of 1 to {_LONGEST} characters; leave it out where nothing is said"]
    if name == "published" and not _is_day(text):
        return ["about.published must be a day such as 2026-11-18"]
    if name == "language" and not _LANGUAGE.fullmatch(text):
        return ['about.language must be the code of a language, such as "en" or "ja"']
    return []


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
