"""Files beside a model that hold the bytes of its tensors: where they may lie.

A model is data, and data must not be able to make the compiler read `/etc/passwd`. It names a file by
a path relative to its own folder, which must not leave that folder: no absolute path, no `..` beyond
it. So the model chooses among the entries of a folder that the user named. Links among those are the
user's, or of the tool that put the model there, but they may also have come along with the model, in an
archive or a repository. Hence two rules for where a link may lead:

* *The folder.* What lies in the folder of the model after links are followed is always fine.
* *The store.* Caches keep files under the hash of their content and make a folder of links for each
  version of a model. There the model is itself a link, and files beside it lead to where it leads: to
  one folder, or to several below one. So where the model is a link out of its folder, a file may lie
  in the deepest folder that holds it and the true model, if the named folder is not in there too. A
  store that holds the folder of links as well may be the whole disk.

A model that is a link into the folder of another copy is looked up there too, after its own folder.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from onnx import TensorProto

from inlay.base.diagnostics import InlayError, error
from inlay.base.span import Span

_MOST_LINKS = 40
"""As many links as the system follows."""


@dataclass(slots=True)
class ExternalFiles:
    """The files that may hold tensors of one model.

    Trouble with a file is one finding, however many tensors are in it: each raises the same error.

    Attributes:
        folders: where a file is looked for, in order; empty for a model without a file.
        model: the model's file after all links; None where only its folder is known.
        stored: bytes of tensors of the model's own file, by locations that no model can name.
    """

    folders: tuple[Path, ...] = ()
    model: Path | None = None
    stored: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    _found: dict[str, Path | InlayError] = field(default_factory=dict[str, "Path | InlayError"])
    _short: dict[str, InlayError] = field(default_factory=dict[str, InlayError])

    @staticmethod
    def beside(model: Path, stored: Mapping[str, np.ndarray] | None = None) -> ExternalFiles:
        """Return the files that a model in a file may name, and what was read of its own."""
        steps = [model]
        while steps[-1].is_symlink() and len(steps) < _MOST_LINKS:
            steps.append(steps[-1].parent / steps[-1].readlink())
        folders = dict.fromkeys(step.parent.resolve() for step in steps)
        return ExternalFiles(tuple(folders), model.resolve(), stored or {})

    @property
    def used(self) -> tuple[str, ...]:
        """The files that hold tensors of the model, as far as they were looked for."""
        return tuple(str(path) for path in self._found.values() if isinstance(path, Path))

    def stored_of(self, tensor: TensorProto) -> np.ndarray | None:
        """Return the bytes of a tensor that were read apart from its model."""
        return next((self.stored[e.value] for e in tensor.external_data if e.value in self.stored), None)

    def find(self, tensor: TensorProto, span: Span) -> tuple[Path, int, int]:
        """Return file, offset and length (-1 = to the end) of a tensor's external data.

        Raises:
            CompileError: `import.external-data` when the file lies elsewhere than it may, is missing
                or too short.
        """
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")

        def bad(why: str, hint: str) -> InlayError:
            message = f"external data of tensor '{tensor.name}' {why}"
            return error("import.external-data", message, span=span, hint=hint)

        path = self._file(location)
        try:
            offset, length = int(entries.get("offset", "0")), int(entries.get("length", "-1"))
        except ValueError:
            raise bad("has an offset or length that is no number", "write the model anew") from None
        if "length" in entries and length < 0:
            raise bad(f"has a length of {length}", "write the model anew")
        size = path.stat().st_size
        if offset < 0 or offset > size or (length >= 0 and offset + length > size):
            end = offset + max(length, 0)
            failure = bad(
                f"needs bytes {offset} to {end} of '{location}', which has {size}",
                "check that the data file is complete",
            )
            raise self._short.setdefault(location, failure)
        return path, offset, length

    def _file(self, location: str) -> Path:
        """Return the file that a location names; raise the same error for each tensor in it."""
        found = self._found.get(location)
        if found is None:
            try:
                found = self._look_up(location)
            except InlayError as failure:
                found = failure
            self._found[location] = found
        if isinstance(found, InlayError):
            raise found
        return found

    def _look_up(self, location: str) -> Path:
        shown = location if len(location) < 200 else location[:200] + "..."

        def bad(why: str, hint: str) -> InlayError:
            return error(
                "import.external-data",
                f"file '{shown}', which the model names for the data of its tensors, {why}",
                span=Span.named(f"external data '{shown}'"),
                hint=hint,
            )

        if not self.folders:
            raise bad(
                "cannot be looked for: the model was given as bytes",
                "load the model from its file, or say where its data is: inlay.load(..., folder=...)",
            )
        inside = os.path.normpath(location)
        if not location or Path(inside).is_absolute() or Path(inside).parts[:1] == (os.pardir,):
            raise bad("is outside the folder of the model", "put the data file beside the model")
        try:
            path = next((p for f in self.folders if (p := f / inside).exists()), None)
            if path is None:
                raise bad("does not exist", f"copy that file into {self.folders[0]}")
            real = path.resolve(strict=True)
            is_file = real.is_file()
        except (OSError, ValueError, RuntimeError) as failure:
            why = getattr(failure, "strerror", None) or failure
            raise bad(f"is none: {why}", "write the model anew") from None
        if not self._may_read(real):
            raise bad(
                f"is a link to {real}, outside the folder of the model",
                "put the data file itself beside the model",
            )
        if not is_file:
            raise bad("is a directory or device", "put the data file beside the model")
        return real

    def _may_read(self, real: Path) -> bool:
        """Whether a file, after all links, lies in a folder of the model or in its store."""
        if any(real.is_relative_to(folder) for folder in self.folders):
            return True
        if self.model is None or self.model.is_relative_to(self.folders[0]):
            return False
        store = Path(os.path.commonpath([real, self.model]))
        return not self.folders[0].is_relative_to(store)
