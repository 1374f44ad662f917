"""What the local page can ask for, apart from HTTP. Its state is the job file on disk: a page that is closed, or a
server that is killed, loses nothing, and whatever the page does can be done again from that file.

*Privacy.* A release is `job.run` of the saved file, and nothing else here draws or charges. What the page shows of rows
and faults is for the operator at this machine; nothing public is derived from it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import shutil
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from kasuri import files, job
from kasuri.budget.ledger import Ledger
from kasuri.errors import DomainError, FormatError, KasuriError, PrivacyError
from kasuri.ingest import File, Table
from kasuri.ingest.sources import KINDS, open_stream
from kasuri.manifest import verify
from kasuri.privacy import asked
from kasuri.start import lists
from kasuri.study import outlook

DATABASES = (".duckdb", ".sqlite", ".sqlite3", ".db")
ROWS = 6
"""Rows of the first look."""
DROP = 4 << 30
"""Most bytes of a file that is dropped on the page; a larger one is named when the page is started."""
PATHS = frozenset(
    {"files", "database", "reads", "labels_file", "places", "file", "ledger", "folder", "exports", "work"}
)
"""Keys of a job file, at any depth, whose values are paths."""
_NAMED = ("reads",)
"""Of these, the ones whose values are named by the operator."""
_STORES, _ADDRESSES = ("database", "exports"), ("postgresql://", "postgres://")
"""Of these, the ones that may hold an address of PostgreSQL instead."""
_TEXT = 60
_FIRST = re.compile("[0-9]{4}")


class ChangedError(KasuriError):
    """The job file is not the one that the page has shown."""


class Desk:
    """One folder, one job file in it, one release at a time."""

    def __init__(self, path: Path, given: Sequence[Path] = ()) -> None:
        self.path = path.absolute()
        self.base = self.path.parent.resolve()
        self._lock = threading.RLock()
        self._worker: threading.Thread | None = None
        self.progress: dict[str, Any] = {"phase": "idle"}
        self._looks: dict[str, Path] = {}
        self._held = _held(self.base)
        self._given = {Path(os.path.realpath(path)) for path in given}
        with_paths = self._content()[0] if self.path.exists() else {}
        self._given |= {Path(os.path.realpath(self.base / name)) for name in _paths(with_paths)}

    def close(self) -> None:
        """Wait for a release that runs, and let another page have the folder."""
        if self._worker is not None:
            self._worker.join()
        os.close(self._held)

    @property
    def busy(self) -> bool:
        return self._worker is not None and self._worker.is_alive()

    # -- the job file ---------------------------------------------------------------------------------------------

    def _content(self) -> tuple[dict[str, Any], str]:
        """What the file says, and which state of the file that is."""
        try:
            text = self.path.read_text(encoding="utf-8")
            content = tomllib.loads(text)
        except FileNotFoundError:
            return {}, ""
        except (OSError, ValueError, RecursionError):
            raise FormatError(f"{self.path.name}: cannot be read as TOML; mend it in an editor, or move it") from None
        return content, _mark(text)

    def begin(self, file: str) -> dict[str, Any]:
        """Begin the job from the header of a table: its names alone, no row."""
        path = self.inside(file)
        content = job.declared(open_stream(path).names, file, path.stem)
        content["output"]["folder"] = self._free("release")
        return self.save(content, self._content()[1])

    def save(self, content: Mapping[str, Any], mark: str) -> dict[str, Any]:
        """Write the job file; refused where it changed since the page has read it."""
        with self._lock:
            if self.busy:
                raise ChangedError("a release is running; change the job when it has ended")
            before, own = self._content()
            if mark != own:
                raise ChangedError("the job file was changed elsewhere; the page shows the new state")
            if self._done(before) is not None:  # the file says what was released, for ever
                raise ChangedError("this job is released, so its file does not change any more; use Next release")
            for name in _paths(content):
                self.inside(name)
            try:
                text = job.toml(content, self.path.name)
                same = tomllib.loads(text) == _plain(content)
            except (AttributeError, TypeError, ValueError):
                same = False
            if not same:
                raise DomainError("the job cannot be written: it has a key or a value that a job file does not have")
            if before and not self.path.read_text(encoding="utf-8").startswith(job.toml({}, self.path.name)[:40]):
                kept = self.path.with_name(f"{self.path.stem}.before-start.toml")
                if not kept.exists():  # with its comments, as its author wrote it
                    shutil.copy(self.path, kept)
            files.write(self.path, text)
            return self.state()

    def inside(self, name: str) -> Path:
        """The file that the page names: in the folder that was opened, or given when the page was started."""
        if not isinstance(name, str) or not name or "\0" in name:
            raise DomainError("a file name is needed")
        path = Path(os.path.realpath(self.base / name))
        if path not in self._given and (not path.is_relative_to(self.base) or "://" in name):
            raise PrivacyError(
                f"{Path(name).name}: not in the folder that was opened; start the page with it: kasuri start FILE"
            )
        if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would be waited for, for ever
            raise DomainError(f"{path.name}: not a file")
        return path

    def state(self) -> dict[str, Any]:
        """All that the page shows, but for rows and simulations."""
        content, mark = self._content()
        faults = [] if not content else job.faults(content, self.base)
        whole = bool(content) and not any(at[:1] != ("output",) or "exists" not in words for at, words in faults)
        return {
            "file": self.path.name,
            "folder": str(self.base),
            "content": _json(content),
            "mark": mark,
            "faults": [{"at": list(at), "words": words} for at, words in faults],
            "files": self._listed(),
            "ledgers": self._ledgers(),
            "toml": job.toml(_plain(content), self.path.name) if content else "",
            "python": job.python(job.Job.model_validate(content), self.base, self.path.name) if whole else "",
            "done": self._done(content),
            "progress": self.progress,
        }

    def _listed(self) -> dict[str, list[str]]:
        found = sorted(path for path in self.base.iterdir() if path.is_file() and not path.name.startswith("."))
        given = [os.path.relpath(path, self.base) for path in sorted(self._given) if path.suffix.lower() in KINDS]
        tables = [path.name for path in found if path.suffix.lower() in KINDS]
        return {
            "tables": list(dict.fromkeys([*(name for name in given if (self.base / name).exists()), *tables])),
            "databases": [path.name for path in found if path.suffix.lower() in DATABASES],
            "labels": [path.name for path in found if path.suffix.lower() == ".csv"],
        }

    def _ledgers(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self.base.glob("*.ledger")):
            try:
                told = Ledger.load(path).summary()
            except KasuriError as error:
                found.append({"file": path.name, "fault": "; ".join(error.faults)})
                continue
            kept = {key: told[key] for key in ("data", "relation", "unit", "balance", "reserved", "committed")}
            found.append({"file": path.name} | kept)
        return found

    def open_ledger(self, name: str, epsilon: str) -> dict[str, Any]:
        """A new ledger for the job's data and unit; the job then names it."""
        content, mark = self._content()
        path = self.inside(name)
        if path.suffix != ".ledger" or path.exists():
            raise DomainError(f"{path.name}: a new name that ends in .ledger is needed")
        try:
            unit = job.Job.model_fields["unit"].annotation.model_validate(content.get("unit", {}))  # type: ignore[union-attr]
            data = content["data"]["name"]
        except (ValueError, KeyError):
            raise DomainError("say first what the data is called and who is protected; a ledger is for both") from None
        from kasuri.schema import Unit

        Ledger.open(path, epsilon=epsilon, unit=Unit(unit.id, unit.change, unit.max_cells, unit.max_weight), data=data)
        budget = {key: value for key, value in content.get("budget", {}).items() if key != "unmetered"}
        return self.save(content | {"budget": budget | {"ledger": os.path.relpath(path, self.base)}}, mark)

    # -- looks ----------------------------------------------------------------------------------------------------

    def preview(self) -> dict[str, Any]:
        """The names of the columns, what they are by their names, and the first rows: for the operator alone."""
        data = self._content()[0].get("data", {})
        if data.get("database"):
            where = data["database"]
            place = where if "://" in where else str(self.inside(where))
            table = data.get("table") or ""
            source: Any = Table(place, table if isinstance(table, str) else tuple(table))
        else:
            source = File(
                [self.inside(name) for name in data.get("files", [])], data.get("encoding"), data.get("sheet")
            )
            if not source.paths:
                raise DomainError("choose a file first")
        stream = open_stream(source)
        names = list(dict.fromkeys(stream.names))
        rows: list[list[str]] = []
        for batch, _ in stream.start(names, []):
            rows += [[_short(value) for value in row.values()] for row in batch.slice(0, ROWS - len(rows)).to_pylist()]
            if len(rows) >= ROWS:
                break
        return {"names": names, "kinds": job.recognised(names), "rows": rows, "label": Path(stream.label).name}

    def windows(self, level: str) -> dict[str, Any]:
        return {"windows": lists.windows(level)}

    def around(self, codes: Sequence[str], level: str) -> dict[str, Any]:
        """The rectangle around first-order meshes."""
        if not codes or not all(isinstance(code, str) and _FIRST.fullmatch(code) for code in codes):
            raise DomainError("first-order meshes have four digits each, such as 5339")
        return lists.first_order(list(codes), level)

    def simulate(self, epsilon: str, recipe: str) -> dict[str, Any]:
        """The public model before and after a release at this epsilon, to look at."""
        domain, unit = self._declared()
        known = outlook.everything(domain)
        if recipe not in known:
            raise DomainError(f"recipe {recipe!r} cannot be simulated; use {', '.join(known)}")
        public = _model(domain, unit)
        loss = asked(epsilon, study=True)
        run = outlook.resolved(known[recipe], domain, unit, loss, public.counts.domain)
        truth = public.picture
        shown = outlook.drawn(public, run.mechanism, epsilon)
        return {
            "model": {"whole": public.whole, "further": len(domain.axes) > 1},
            "shape": list(truth.shape),
            "before": truth.ravel().tolist(),
            "after": shown.sum(axis=tuple(range(truth.ndim, shown.ndim))).ravel().tolist(),
            "recipe": run.mechanism.name,
        }

    def expected(self, epsilon: str, people: Sequence[int], *, every: bool) -> dict[str, Any]:
        """Errors by recipe and size of area, on the public model."""
        domain, unit = self._declared()
        if not people or len(people) > 8 or any(type(size) is not int or not 0 <= size <= 10**9 for size in people):
            raise DomainError("sizes of areas are one to eight whole numbers of people")
        tried = outlook.at_once(domain, every=every)
        told = outlook.outlook(tried, domain, unit, [epsilon], people=people, trials=2)
        return told.to_json() | {"advice": told.advice()}

    def _declared(self) -> tuple[Any, Any]:
        """The domain and the unit, as far as they are declared."""
        content = self._content()[0]
        filler = {
            "data": {"name": "simulated", "files": ["simulated.csv"], "columns": {}},
            "budget": {"epsilon": "1", "unmetered": True},
            "output": {"folder": "simulated"},
        }
        kept = {key: content[key] for key in ("axes", "masks", "unit") if key in content}
        own = filler | kept | ({"data": content["data"]} if "data" in content else {})
        faults = [words for at, words in job.faults(own, self.base) if at[:1] in (("axes",), ("masks",), ("unit",))]
        if faults:
            raise DomainError(*faults)
        made = job.Job.model_validate(filler | kept)
        return job.domain(made, self.base), job.unit(made)

    def check(self) -> dict[str, Any]:
        """Every fault of the job and its data. Confidential."""
        with self._lock:
            return {"faults": job.check(self.path)}

    # -- the release ----------------------------------------------------------------------------------------------

    def release(self, mark: str) -> dict[str, Any]:
        """Begin the release of the job as the page has shown it; once at a time, and never twice into one folder."""
        with self._lock:
            if self.busy:
                raise ChangedError("a release is running already")
            content, own = self._content()
            if mark != own:
                raise ChangedError("the job file was changed elsewhere; look at it again before it is released")
            faults = job.faults(content, self.base)
            if faults:
                raise DomainError(*(f"{'.'.join(map(str, at))}: {words}" for at, words in faults))
            self.progress = {"phase": "reading", "share": 0.0}
            self._worker = threading.Thread(target=self._run, args=(job.Job.model_validate(content),))
            self._worker.start()
            return {"progress": self.progress}

    def _run(self, work: job.Job) -> None:
        folder = self.base / work.output.folder
        book = None if work.budget.ledger is None else self.base / work.budget.ledger
        before = _spent(book)

        def seen(share: float) -> None:
            phase = "reading" if share < 1 else "writing"
            self.progress = {"phase": phase, "share": round(float(share), 2)}

        try:
            job.run(work, self.base, progress=seen)
            self.progress = {"phase": "verifying", "share": 1.0}
            told = verify(folder, ledger=book)
            self.progress = {"phase": "done", "ok": told.ok, "faults": list(told.faults)}
        except KasuriError as error:
            faults = list(error.faults)
            self.progress = {"phase": "failed", "faults": faults, "charged": _spent(book) != before}
        except Exception as error:  # a library's message can quote a record
            words = f"failed ({type(error).__name__}); its message is withheld, it could quote data"
            self.progress = {"phase": "failed", "faults": [words], "charged": _spent(book) != before}

    def _done(self, content: Mapping[str, Any]) -> dict[str, Any] | None:
        """The release of the job, where its folder is there."""
        name = content.get("output", {}).get("folder")
        if not isinstance(name, str) or not (self.inside(name) / "datapackage.json").exists():
            return None
        exports = [own for own in content["output"].get("exports", []) if (self.base / own).exists()]
        return {"folder": name, "path": str(self.inside(name)), "exports": exports}

    def verified(self) -> dict[str, Any]:
        """Whether the folder is as it was written."""
        content = self._content()[0]
        done = self._done(content)
        if done is None:
            raise DomainError("nothing is released yet")
        book = content.get("budget", {}).get("ledger")
        told = verify(done["path"], ledger=None if book is None else self.inside(book))
        return {"ok": told.ok, "faults": list(told.faults)}

    def look(self) -> dict[str, Any]:
        """An address of the report that works once."""
        done = self._done(self._content()[0])
        if done is None:
            raise DomainError("nothing is released yet")
        word = secrets.token_urlsafe(32)
        self._looks[word] = Path(done["path"]) / "report.html"
        return {"address": f"/look/{word}"}

    def taken(self, word: str) -> Path | None:
        return self._looks.pop(word, None)

    def next(self) -> dict[str, Any]:
        """A further job file like this one: a new folder, and epsilon to be chosen again."""
        with self._lock:
            content = self._content()[0]
            if self._done(content) is None or self.busy:
                raise DomainError("release this job first")
            folder = self._free("release")
            old = content["output"]["folder"]
            exports = [name.replace(old, folder) for name in content["output"].get("exports", [])]
            output = content["output"] | {"folder": folder} | ({"exports": exports} if exports else {})
            budget = {key: value for key, value in content["budget"].items() if key != "epsilon"}
            self.path = self.base / self._free(self.path.stem.rstrip("-0123456789") or "job", ".toml")
            self.progress = {"phase": "idle"}
            return self.save(content | {"output": output, "budget": budget}, "")

    def _free(self, stem: str, ending: str = "") -> str:
        """stem, stem-2, stem-3: the first that is not taken."""
        number, name = 1, f"{stem}{ending}"
        while os.path.lexists(self.base / name):
            number += 1
            name = f"{stem}-{number}{ending}"
        return name

    def room(self, name: str, size: int) -> Path:
        """Where a dropped file of so many bytes goes; refused where it is too large or its name is not plain."""
        plain = Path(name)
        if plain.name != name or name.startswith(".") or plain.suffix.lower() not in (*KINDS, *DATABASES):
            raise DomainError("a dropped file is .csv, .xlsx, .parquet, .duckdb or .sqlite, with a plain name")
        if size > DROP or size > shutil.disk_usage(self.base).free // 2:
            raise DomainError(f"{name}: too large to drop; leave it where it is and start with it: kasuri start {name}")
        return self.base / self._free(plain.stem, plain.suffix)


def _held(folder: Path) -> int:
    """The folder, held by this page alone until it is closed."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise DomainError(f"{folder}: another kasuri start has this folder open; close it first") from None
    return handle


def _paths(content: Any, key: str = "") -> Iterator[str]:
    """Every path that a job names, wherever in it that is, and every address that is not one of PostgreSQL: a store
    of files (s3://, file://) reads what is outside too."""
    if isinstance(content, Mapping):
        for name, value in content.items():
            if key in _NAMED:
                yield from _paths(value, key)
            elif name != "columns":  # names of columns by axes, however these are called
                yield from _paths(value, name)
    elif isinstance(content, list):
        for value in content:
            yield from _paths(value, key)
    elif key in PATHS and isinstance(content, str) and not (key in _STORES and content.startswith(_ADDRESSES)):
        yield content


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """Without keys that have no value."""
    if isinstance(value, Mapping):
        return {key: _plain(own) for key, own in value.items() if own is not None}
    return [_plain(own) for own in value] if isinstance(value, list) else value


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _json(own) for key, own in value.items()}
    if isinstance(value, list):
        return [_json(own) for own in value]
    return value if isinstance(value, (str, int, float, bool)) else str(value)


def _short(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"


def _spent(book: Path | None) -> Any:
    return None if book is None or not book.exists() else Ledger.load(book).summary()["entries"]


@lru_cache(maxsize=4)
def _model(domain: Any, unit: Any) -> outlook.Model:
    return outlook.model(domain, unit, cells=1 << 14)
