"""Executables for people: load, look, call, save.

    executable = load_executable("model.inlay", threads=2)
    executable.inputs                      # names, dtypes, dims
    outputs = executable.run({"x": x})     # {name: array}
    y = executable(x)                      # the same by position

An executable is immutable and may be called from any thread; the GIL is free while it runs. Inputs
are NumPy arrays or anything that offers DLPack; contiguous ones are read in place. Outputs are
NumPy arrays that own their memory (and offer DLPack). Strings come in any form that NumPy has for
them, and go out as arrays of `str` objects. Where a program takes or gives structure, a
`List` is a list of them, an `Option` is None or one of them, and a tuple is a tuple. An input that does
not fit is refused with a sentence, and the executable stays usable.

So it does when a device is lost (`run.device-lost`): the call fails, and the next one opens the devices
again, with their code and constants. Nothing else of a device outlives a call, so one that is lost
between two calls is opened again without a failure. A process that is forked from one with executables
opens each anew at its first call; what runs in the parent does not run in it.
"""

from __future__ import annotations

import inspect
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import IO, Any, Literal, cast

from inlay.base.diagnostics import InlayError, RunError, error, printable
from inlay.base.files import writing
from inlay.base.metadata import Metadata
from inlay.bytecode.container import Container, sealed
from inlay.bytecode.program import Entry, HostBody, Kernel, Program
from inlay.bytecode.spec import Spec, is_flat
from inlay.bytecode.writer import Piece, pieces
from inlay.runtime import text
from inlay.runtime.binder import bind
from inlay.runtime.calls import owners_of
from inlay.runtime.chosen import chosen_settings
from inlay.runtime.drivers import driver_of, prepared
from inlay.runtime.extern import Extern, bind_externs
from inlay.runtime.given import called, check_given, check_meant
from inlay.runtime.growing import GrowingRuns, Updates
from inlay.runtime.host_cpu import check_target
from inlay.runtime.modes import check_own_batches, mode_of
from inlay.runtime.native import NOT_DONE, Callback, Mode, NativeEngine, Settings, limited
from inlay.runtime.pages import in_memory
from inlay.runtime.promise import kept, promise_of
from inlay.runtime.reference import ReferenceEngine
from inlay.runtime.request import Request, Requests, Run, deadline_after
from inlay.runtime.sessions import Session, chosen_state
from inlay.runtime.state import State, first_values, states_of
from inlay.runtime.streams import opened_kept
from inlay.runtime.strings import Strings, has_strings
from inlay.runtime.structure import Structure
from inlay.runtime.trace import Event
from inlay.runtime.usage import Usage

EngineName = Literal["native", "python"]


class Executable:
    """A loaded program.

    Attributes:
        entries: what can be called; the first one is called where none is named.
        threads: parts that parallel kernels are divided into.
        mode: how calls go through the program, and why so.
    """

    def __init__(
        self,
        source: Path | mmap.mmap,
        *,
        settings: Settings,
        chose_threads: bool = False,
        engine: EngineName = "native",
        verify: bool = True,
        callbacks: Mapping[str, Callback] | None = None,
        symbols: Mapping[str, int] | None = None,
        externs: Sequence[Extern] = (),
        made_from: Sequence[str] = (),
    ) -> None:
        self._source = source
        self._process = os.getpid()
        self._made_from = tuple(made_from)
        self._container = _open(source, verify=verify)
        check_target(self._container.target())
        self.entries: tuple[Entry, ...] = self._container.entries()
        properties = self._container.properties()
        kernels, devices = self._container.kernels(), bool(self._container.devices())
        check_own_batches(settings, kernels)
        settings = kept(promise_of(properties), settings.completed(properties), asked=chose_threads)
        self.threads = settings.threads
        self._requests = Requests(settings.activations, settings.waiting)
        self.mode = mode_of(settings.mode, kernels, devices=devices, threads=settings.threads)
        settings = replace(settings, mode=self.mode.mode)
        self._externs = tuple(externs)  # what their addresses depend on must live
        functions, addresses = bind_externs(kernels, externs)
        functions |= opened_kept(self._container.program, properties, callbacks or {})
        functions |= called(kernels, callbacks or {}) | text.callbacks(kernels)
        self._strings = self._table(kernels)
        if self._strings is not None:
            functions = {k: self._strings.shown(k, f) for k, f in functions.items()}
        addresses |= symbols or {}
        check_meant(kernels, callbacks or {}, symbols or {})
        check_given(kernels, functions, addresses, owners_of(properties))
        self._is_remote = False
        self._open: Callable[[], NativeEngine | ReferenceEngine]
        if engine == "native":
            self._is_remote = any(d.is_remote for d in prepared(x.driver for x in self._container.devices()))
            self._open = partial(NativeEngine, source, settings, kernels, functions, addresses)
        else:
            program = self._container.program()
            self._open = partial(ReferenceEngine, program, settings, functions, addresses)
        self._engine = self._open()
        self._is_lost = False
        self._opening = threading.Lock()
        self._may_hang = bool(callbacks) or _end_later(externs)  # their futures may never be done
        _OPEN.add(self)
        self._indices = {entry.name: index for index, entry in enumerate(self.entries)}
        self._names = [
            ([spec.name for spec in entry.inputs], [spec.name for spec in entry.outputs])
            for entry in self.entries
        ]
        self._is_flat = [
            is_flat(specs) and not has_strings(specs)
            for specs in ((*entry.inputs, *entry.outputs) for entry in self.entries)
        ]
        self._short = self._shortest()

    def _table(self, kernels: Sequence[Kernel]) -> Strings | None:
        """Return the table of strings; None where nothing can look into one.

        What a callback takes and gives, the file does not say: each may see strings.
        """
        specs = [spec for entry in self.entries for spec in (*entry.inputs, *entry.outputs)]
        if has_strings(specs) or any(isinstance(k.body, HostBody) for k in kernels):
            return Strings(self._container.strings)
        return None

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """What the first entry takes; nothing where there is none."""
        return self.entries[0].inputs if self.entries else ()

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """What the first entry gives; nothing where there is none."""
        return self.entries[0].outputs if self.entries else ()

    @cached_property
    def _states(self) -> dict[str, State]:
        return states_of(self._container.properties())

    @property
    def state(self) -> dict[str, str]:
        """What the first entry keeps from run to run: outputs by the inputs that they become."""
        said = self._states.get(self.entries[0].name) if self.entries else None
        return dict(said.pairs) if said is not None else {}

    @property
    def metadata(self) -> Metadata:
        """What the model says of itself: its name, who made it, and what they noted."""
        return Metadata.from_text(self._container.properties().get("report", ""))

    def __repr__(self) -> str:
        """Return one line: what the first entry takes and gives."""
        first = [f"{entry.name}{_signature(entry)}" for entry in self.entries[:1]]
        more = len(self.entries) - 1
        others = f" and {more} more" if more > 0 else ""
        return printable(f"<Executable {first[0] if first else 'without entries'}{others}>")

    @property
    def program(self) -> Program:
        """The program as data, read from the file."""
        return self._container.program()

    def run(
        self,
        inputs: Mapping[str, Any],
        *,
        outputs: Sequence[str] | None = None,
        entry: str | None = None,
        timeout: float | None = None,
    ) -> dict[str, Structure]:
        """Return the outputs by name: arrays, or lists, options and tuples of them.

        Args:
            inputs: by name.
            outputs: which, in this order; all by default. Those that are left out are computed and
                given back at once; `inlay.compile(outputs=[...])` computes less.
            entry: what to call; the first entry by default.
            timeout: seconds after which the run is given up; the C runtime looks at it between
                kernels, and finishes those that run. Where callbacks may answer with futures that are
                never done, the run is made on another thread, which is left behind.

        Raises:
            RunError: `input.*` where inputs do not fit the signature; `run.*` where running
                fails. `DeadlineError` and `Cancelled` are among them.
        """
        if timeout is not None:
            if self._may_hang:
                return self.submit(inputs, entry=entry, timeout=timeout).result()
            once = partial(self.run, inputs, outputs=outputs, entry=entry)
            return limited(bytearray(1), deadline_after(timeout), once)
        index = 0 if entry is None and self.entries else self._index(entry)
        names, results = self._names[index]
        if outputs is not None:
            self._check_outputs(outputs, results)
        try:
            if len(names) == 1 == len(inputs):  # most often, and a comprehension takes 0.1 us
                arrays = [inputs[names[0]]]
            else:
                arrays = [inputs[name] for name in names] if len(inputs) == len(names) else None
        except (KeyError, TypeError, IndexError):
            arrays = None
        if arrays is None:  # something differs, and this says what
            arrays = self._fitted(index, inputs)
        found = self._call(index, arrays)
        if outputs is None and len(results) == 1:
            return {results[0]: found[0]}
        named = dict(zip(results, found, strict=True))
        return named if outputs is None else {name: named[name] for name in outputs}

    def submit(
        self,
        inputs: Mapping[str, Any],
        *,
        outputs: Sequence[str] | None = None,
        entry: str | None = None,
        timeout: float | None = None,
        priority: int = 0,
    ) -> Request:
        """Return the future of a run; arguments and errors are those of `run`.

        Any thread may submit; as many runs as there are activations are made at a time, and of those that
        wait the one with the largest priority is next. What is not done when the process ends is given up.

        Raises:
            RunError: `run.queue-full` where `Settings.waiting` allows no more to wait; `run.would-be-late`
                where it would have to wait, and runs take so long of late that it could not end in time.
        """
        index = self._index(entry)
        if outputs is not None:
            self._check_outputs(outputs, self._names[index][1])
        work = partial(self.run, inputs, outputs=outputs, entry=entry)
        return self._requests.submit(work, timeout, priority)

    def session(
        self,
        carry: Mapping[str, str] | None = None,
        state: Mapping[str, Any] | None = None,
        *,
        entry: str | None = None,
    ) -> Session:
        """Return a session: runs in which outputs become inputs of the next run.

        Args:
            carry: input by output; by default what the program says (`state`), and outputs that are an
                input with more behind it.
            state: first values of these inputs; those that are not given are what the program says,
                if it says which inputs these are. What grows begins with nothing.
            entry: what is called; the first entry by default.

        Raises:
            CompileError: `input.session` for names that the entry does not have, `input.missing` for
                an input without a first value.
        """
        described = self.entries[self._index(entry)]
        said = self._states.get(described.name, State())
        carry, state = chosen_state(described, said, carry, state, partial(self._first, described, said))
        types = {spec.name: spec.type_text for spec in described.inputs}
        return Session(self._runs(described, said, carry), carry, state, self._requests, types)

    def _runs(self, entry: Entry, said: State, carry: Mapping[str, str]) -> Run:
        """Return what runs an entry for a session: in place, if it carries all that grows or is updated."""
        index = self._indices.get(said.grown)
        is_plain = self._strings is None and not self._is_remote and not self._may_hang
        is_plain = is_plain and isinstance(self._engine, NativeEngine)
        if index is None or not is_plain or not self._is_flat[index] or not said.is_carried(carry):
            return partial(self.run, entry=entry.name)
        updates = Updates(entry, self.entries[index], said.updates, carry)
        return GrowingRuns(
            entry, index, said.grows, updates, lambda: cast("NativeEngine", self._opened())
        ).run

    def first_state(self, entry: str | None = None) -> dict[str, Any]:
        """Return first values of the inputs that an entry keeps from run to run."""
        described = self.entries[self._index(entry)]
        said = self._states.get(described.name, State())
        return self._first(described, said, [given for given, _ in said.pairs])

    def _first(self, entry: Entry, said: State, names: Sequence[str]) -> dict[str, Any]:
        return first_values(entry, said, lambda name: self.run({}, entry=name), names)

    def __call__(self, *arrays: Any) -> Structure:
        """Call the first entry by position; a single output comes alone, several in a tuple."""
        engine = self._short
        if engine is None:
            found = self._call(0 if self.entries else self._index(None), arrays)
        else:
            try:
                found = engine.call(0, *arrays)
            except NOT_DONE as failure:
                self._check(engine, failure)
                found = self._bound(0, arrays)
        return found[0] if len(found) == 1 else tuple(found)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the executable to a file; an existing one is replaced at once.

        Raises:
            CompileError: `save.over-input` where it is a file that the program was compiled from.
            OSError: the file cannot be written; what was there is still there.
        """
        with writing(Path(path), inputs=self._made_from) as stream:
            stream.writelines(sealed(self._container))

    def events(self) -> list[Event]:
        """Return what happened in runs since this was asked last, if `Settings.trace` is set; see
        `inlay.runtime.trace`.
        """
        return self._engine.events() if isinstance(self._engine, NativeEngine) else []

    def usage(self) -> Usage:
        """Return what the last call took of memory, and what the executable has.

        Raises:
            CompileError: `option.no-effect` for the reference interpreter, which counts nothing.
        """
        if not isinstance(self._engine, NativeEngine):
            raise error("option.no-effect", "found engine='python', which does not count memory")
        return self._engine.usage([m.name for m in self._container.memories()])

    def live_objects(self) -> int:
        """Return how many objects of the machine are alive between calls (0, for tests)."""
        return self._engine.live_objects() if isinstance(self._engine, NativeEngine) else 0

    @staticmethod
    def _check_outputs(asked: Sequence[str], known: Sequence[str]) -> None:
        unknown = [name for name in asked if name not in known]
        if unknown or isinstance(asked, str):
            listed = ", ".join(f"'{name}'" for name in known)
            found = f"'{asked}' for a list" if isinstance(asked, str) else f"'{unknown[0]}'"
            raise error("input.output", f"found {found} as outputs asked for; there are {listed}")

    def _index(self, entry: str | None) -> int:
        if entry is None and self.entries:
            return 0
        index = self._indices.get(entry or "")
        if index is None and not self.entries:
            raise error("input.entry", "the executable has no entries that could be called")
        if index is None:
            known = ", ".join(f"'{name}'" for name in self._indices)
            raise error("input.entry", f"there is no entry '{entry}'; there are {known}")
        return index

    def _call(self, index: int, arrays: Sequence[Any]) -> list[Structure]:
        """Call the engine, with strings that stay valid."""
        if self._strings is None:
            return self._tried(index, arrays)
        with self._strings.call():
            return self._tried(index, arrays)

    def _tried(self, index: int, arrays: Sequence[Any]) -> list[Structure]:
        """Call the engine; where it does not take the arrays as they are, find out why.

        Small programs take less time than what is around them here: what is always so is not asked.
        """
        engine = self._opened() if self._is_lost or self._is_remote else self._engine
        if isinstance(engine, NativeEngine):
            try:
                if self._is_flat[index]:
                    return engine.call(index, *arrays)
                if self._strings is None:
                    return engine.call_values(index, self.entries[index], arrays)
            except (*NOT_DONE, RunError) as failure:
                self._check(engine, failure)
        return self._bound(index, arrays)

    def _check(self, engine: NativeEngine, failure: Exception) -> None:
        """Raise what a call failed with, unless its arrays may only have to be brought to their types.

        They may have no row-major memory, or a type that the buffer protocol does not know.
        """
        problem = engine.problem_of(failure)
        if problem is None:
            return
        self._note(engine, problem)
        if problem.ids != ("input.mismatch",):
            raise problem from failure.__cause__

    def _bound(self, index: int, arrays: Sequence[Any]) -> list[Structure]:
        """Call an entry with arrays that are brought to its types, or say which does not fit."""
        entry = self.entries[index]
        names = self._names[index][0]
        named = {names[i] if i < len(names) else f"#{i + 1}": a for i, a in enumerate(arrays)}
        bound = self._fitted(index, named)
        if self._strings is None:
            return self._run(index, bound)
        results = self._run(index, self._strings.encode_all(entry.inputs, bound))
        return self._strings.decode_all(entry.outputs, results)

    def _fitted(self, index: int, inputs: Mapping[str, Any]) -> list[Structure]:
        """Return inputs brought to the types of an entry, or say which does not fit."""
        entry = self.entries[index]
        return bind(entry, inputs, dict(self._states.get(entry.name, State()).pairs))

    def _run(self, index: int, bound: list[Structure]) -> list[Structure]:
        """Run with inputs that fit their specs, strings as handles."""
        engine = self._opened()
        if isinstance(engine, ReferenceEngine):
            return limited(bytearray(1), 0, lambda: engine.call(index, bound), inside=True)
        try:
            return engine.call_values(index, self.entries[index], bound)
        except RunError as problem:
            self._note(engine, problem)
            raise

    def _opened(self) -> NativeEngine | ReferenceEngine:
        """Return the engine; another one where a device of it was lost."""
        if self._is_lost or (self._is_remote and self._has_lost()):
            with self._opening:
                if self._is_lost or self._has_lost():
                    self._check_process()
                    self._engine = self._open()
                    self._is_lost = False
                    self._short = self._shortest()
        return self._engine

    def _has_lost(self) -> bool:
        """Return whether a device was lost while nobody called."""
        return isinstance(self._engine, NativeEngine) and self._engine.is_lost()

    def _check_process(self) -> None:
        """Refuse to open devices anew whose drivers do not survive a fork."""
        if self._process == os.getpid():
            return
        for device in self._container.devices():
            if not driver_of(device.driver).forks:
                raise error(
                    "run.forked",
                    f"the parent of this process opened device '{device.name}', and its "
                    f"driver '{device.driver}' does not work in a forked child",
                    hint="start processes with `multiprocessing.get_context('spawn')`, or "
                    "load the executable in the child only",
                )

    def begin_anew(self) -> None:
        """In a forked child: nothing that the parent's threads do, or hold, is here."""
        self._opening = threading.Lock()
        self._requests.forget()
        self._is_lost, self._short = True, None
        if self._strings is not None:
            self._strings.begin_anew()

    def _shortest(self) -> NativeEngine | None:
        """Return the engine where calls of the first entry by position need nothing but it."""
        if self._is_remote or self._strings is not None or not self._is_flat or not self._is_flat[0]:
            return None
        return self._engine if isinstance(self._engine, NativeEngine) else None

    def _note(self, engine: NativeEngine, problem: InlayError) -> None:
        """Remember that a device is lost, unless its engine was given up since."""
        if problem.ids in (("run.device-lost",), ("run.server-limit",)):
            with self._opening:
                if engine is self._engine:
                    self._is_lost, self._short = True, None


_OPEN: weakref.WeakSet[Executable] = weakref.WeakSet()
"""The executables of this process."""


def _in_child() -> None:
    for executable in tuple(_OPEN):
        executable.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def load_executable(
    source: str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes],
    *,
    threads: int | None = None,
    mode: Mode | None = None,
    seed: int | None = None,
    engine: EngineName = "native",
    verify: bool = True,
    callbacks: Mapping[str, Callback] | None = None,
    symbols: Mapping[str, int] | None = None,
    externs: Sequence[Extern] = (),
    settings: Settings | None = None,
) -> Executable:
    """Load an executable; neither a compiler nor the model is needed.

    Args:
        source: an `.inlay` file, which must not change while the executable is in use; or the
            content of one, or an open file, which are copied.
        threads: parts of parallel kernels; by default as many as there are usable processors.
        mode: how calls go through the program: `sequential`, `parallel` or `replay`; by
            default `parallel` where the program was compiled with `batch=True`, `sequential` on one
            thread and where there are callbacks or devices, else for each call what was faster.
        seed: of mode `replay`.
        engine: the C runtime, or the slow reference interpreter.
        verify: whether the digest of the constants is checked too (the rest always is).
        callbacks: Python functions that kernels name.
        symbols: addresses of C functions that kernels name.
        externs: operators of your own that the program uses: those in Python must be given, those
            in C where they are not in the library that the file names.
        settings: everything else; `threads`, `mode` and `seed` override its own.

    Raises:
        CompileError: `container.*`, `extern.*`.
        OSError: the file cannot be read.
    """
    chosen = chosen_settings(settings, threads, mode, seed)
    if isinstance(source, str | os.PathLike):
        place: Path | mmap.mmap = Path(source)
    else:
        is_open = not isinstance(source, bytes | bytearray | memoryview)
        place = in_memory([source.read() if is_open else source])
        # What was compiled in this process needs no checks; this comes from elsewhere, as files do.
        chosen = replace(chosen, checked=True if chosen.checked is None else chosen.checked)
    return Executable(
        place,
        settings=chosen,
        chose_threads=threads is not None,
        engine=engine,
        verify=verify,
        callbacks=callbacks,
        symbols=symbols,
        externs=externs,
    )


def executable_of(
    program: Program | list[Piece],
    *,
    threads: int | None = None,
    mode: Mode | None = None,
    seed: int | None = None,
    engine: EngineName = "native",
    callbacks: Mapping[str, Callback] | None = None,
    symbols: Mapping[str, int] | None = None,
    externs: Sequence[Extern] = (),
    settings: Settings | None = None,
    made_from: Sequence[str] = (),
) -> Executable:
    """Return a program, or the pieces of its file (taken off their list), as an executable without a file."""
    return Executable(
        in_memory(program if isinstance(program, list) else list(pieces(program, seals=False))),
        settings=chosen_settings(settings, threads, mode, seed),
        chose_threads=threads is not None,
        engine=engine,
        verify=False,
        callbacks=callbacks,
        symbols=symbols,
        externs=externs,
        made_from=made_from,
    )


def _end_later(externs: Sequence[Extern]) -> bool:
    return any(inspect.iscoroutinefunction(e.python) for e in externs)


def _open(source: Path | mmap.mmap, *, verify: bool) -> Container:
    if isinstance(source, mmap.mmap):
        return Container(memoryview(source), check_constants=verify)
    with source.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        if size == 0:
            return Container(b"")
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    container = Container(memoryview(mapped), check_constants=verify)
    # The runtime maps the file for itself; what computing the digests brought in here can go.
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
    return container


def _signature(entry: Entry) -> str:
    takes, gives = (
        ", ".join(f"{s.name}: {s.type_text}" for s in specs) for specs in (entry.inputs, entry.outputs)
    )
    return f"({takes}) -> ({gives})"
