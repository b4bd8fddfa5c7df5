"""Options of sessions and of runs: which mean something here, which are hints, which are refused.

Every field of onnxruntime's classes is in one of three groups, and the tables of this file are the
groups. A field that means something is used. A *hint* says how to be fast, how much to print or where
to take memory from; no result depends on it, and it is accepted and does nothing. All else is refused
by name where it is set or where the session is made, unless it is set to what it is anyway.
"""

from __future__ import annotations

import enum
from typing import Any, ClassVar

from inlay.base.registry import suggestion
from inlay.compat.onnxruntime.failures import Fail, InvalidArgument, NotOffered


class GraphOptimizationLevel(enum.IntEnum):
    """How much a graph is rewritten; a hint: Inlay compiles in one way."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Whether kernels that do not need each other may run at once."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """The order of nodes; a hint."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


USED: dict[str, Any] = {
    "intra_op_num_threads": 0,
    "inter_op_num_threads": 0,
    "execution_mode": ExecutionMode.ORT_SEQUENTIAL,
    "enable_profiling": False,
    "profile_file_prefix": "onnxruntime_profile_",
}
"""Fields of `SessionOptions` that mean something here, and what they are at first.

Kernels run on `intra_op_num_threads` threads; 0 stands for all processors. `inter_op_num_threads`
counts where the mode is parallel: then there are as many threads as the larger of the two says.
"""

HINTS: dict[str, Any] = {
    "enable_cpu_mem_arena": True,
    "enable_mem_pattern": True,
    "enable_mem_reuse": True,
    "execution_order": ExecutionOrder.DEFAULT,
    "graph_optimization_level": GraphOptimizationLevel.ORT_ENABLE_ALL,
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "use_deterministic_compute": False,
    "use_per_session_threads": True,
}
"""Fields of `SessionOptions` that no result depends on. Runs are deterministic in any case."""

REFUSED: dict[str, Any] = {"optimized_model_filepath": ""}
"""Fields of `SessionOptions` that Inlay does not have."""

ENTRY_HINTS = (
    "session.intra_op.allow_spinning",
    "session.inter_op.allow_spinning",
    "session.force_spinning_stop",
    "session.intra_op_thread_affinities",
    "session.dynamic_block_base",
    "session.disable_prepacking",
    "session.save_external_prepacked_constant_initializers",
    "session.use_env_allocators",
    "session.use_device_allocator_for_initializers",
    "session.use_memory_mapped_ort_model",
    "session.enable_quant_qdq_cleanup",
    "session.qdqisint8allowed",
    "session.disable_quant_qdq",
    "session.disable_double_qdq_remover",
    "session.disable_aot_function_inlining",
    "session.disable_specified_optimizers",
    "session.graph_optimizations_loop_level",
    "session.set_denormal_as_zero",
    "session.disable_cpu_ep_fallback",
    "session.load_model_format",
    "optimization.enable_gelu_approximation",
    "optimization.enable_cast_chain_elimination",
    "optimization.disable_specified_optimizers",
    "mlas.enable_gemm_fastmath_arm64_bfloat16",
)
"""Entries of the configuration of a session that are hints. Denormal numbers are kept, and a fast
approximation that is allowed is not made: results are those of the exact setting.
"""

RUN_HINTS: dict[str, Any] = {
    "log_severity_level": -1,
    "log_verbosity_level": 0,
    "logid": "",
    "only_execute_path_to_fetches": False,
}
"""Fields of `RunOptions` that no result depends on."""

RUN_ENTRY_HINTS = ("memory.enable_memory_arena_shrinkage", "disable_synchronize_execution_providers")
"""Entries of the configuration of a run that are hints."""


class _Fields:
    """An object that has the fields of a table: others are unknown, and values keep their types."""

    _fields: ClassVar[dict[str, Any]] = {}

    def __init__(self) -> None:
        for name, value in self._fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields:
            # What the object keeps beside its options has a name that no option has.
            if name.startswith("_"):
                object.__setattr__(self, name, value)
                return
            hint = suggestion(name, self._fields)
            raise AttributeError(f"'{type(self).__name__}' has no option '{name}'; {hint}".rstrip("; "))
        first = self._fields[name]
        if isinstance(first, enum.IntEnum) or type(first) is int:
            fits = isinstance(value, int) and not (type(first) is int and isinstance(value, bool))
            value = type(first)(value) if fits else value
        else:
            fits = isinstance(value, type(first))
        if not fits:
            found = type(value).__name__
            raise TypeError(f"option '{name}' is {found} {value!r}, and must be a {type(first).__name__}")
        object.__setattr__(self, name, value)


class SessionOptions(_Fields):
    """Options of a session, with the fields of `USED`, `HINTS` and `REFUSED`."""

    _fields: ClassVar[dict[str, Any]] = {**USED, **HINTS, **REFUSED}

    intra_op_num_threads: int
    inter_op_num_threads: int
    execution_mode: ExecutionMode
    enable_profiling: bool
    profile_file_prefix: str

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, str] = {}
        self._sizes: tuple[dict[str, int], dict[str, int]] = {}, {}

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Note an entry of the configuration.

        Raises:
            NotImplemented: it is none of `ENTRY_HINTS`.
        """
        _add(self._entries, key, value, ENTRY_HINTS)
        if key == "session.load_model_format" and value.upper() != "ONNX":
            raise NotOffered(f"entry '{key}' is '{value}', and models are read in format ONNX")

    def get_session_config_entry(self, key: str) -> str:
        """Return the value of an entry that was added."""
        return _entry(self._entries, key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a symbolic dim of the inputs a size."""
        self._sizes[0][name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Give the dims of the inputs that have a denotation (`DATA_BATCH`) a size."""
        self._sizes[1][denotation] = size

    @property
    def sizes(self) -> tuple[dict[str, int], dict[str, int]]:
        """The sizes that dims get, by name and by denotation."""
        return self._sizes

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse: operators that were built for onnxruntime do not run here."""
        raise NotOffered(
            f"the operators in '{path}' are built for onnxruntime; give Inlay an implementation: "
            "installed(externs=[inlay.extern(...)])"
        )


class RunOptions(_Fields):
    """Options of a run, with the fields of `RUN_HINTS`.

    A run that has begun stops soon after another thread sets `terminate`, and raises `Fail`.
    """

    _fields: ClassVar[dict[str, Any]] = RUN_HINTS

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, str] = {}
        self._flag = bytearray(1)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "terminate":
            self._flag[0] = bool(value)
        else:
            super().__setattr__(name, value)

    @property
    def terminate(self) -> bool:
        """Whether runs with these options are to stop."""
        return bool(self._flag[0])

    @property
    def flag(self) -> bytearray:
        """The byte that stops runs with these options."""
        return self._flag

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Note an entry of the configuration.

        Raises:
            NotImplemented: it is none of `RUN_ENTRY_HINTS`.
        """
        _add(self._entries, key, value, RUN_ENTRY_HINTS)

    def get_run_config_entry(self, key: str) -> str:
        """Return the value of an entry that was added."""
        return _entry(self._entries, key)


def flag_of(options: RunOptions | None) -> bytearray | None:
    """Return the byte that stops runs with these options.

    Raises:
        Fail: it is set already.
        InvalidArgument: these are no options of a run.
    """
    if options is None:
        return None
    if not isinstance(options, RunOptions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidArgument(f"run options are a {type(options).__name__}, not RunOptions")
    if options.terminate:
        raise Fail("the option 'terminate' is set: nothing was run")
    return options.flag


def check(options: SessionOptions) -> None:
    """Refuse what Inlay does not have.

    Raises:
        NotImplemented: a field of `REFUSED` is not what it is at first.
        InvalidArgument: a number of threads is negative.
    """
    for name, first in REFUSED.items():
        if getattr(options, name) != first:
            raise NotOffered(f"Inlay has no session option '{name}' ({getattr(options, name)!r})")
    for name in ("intra_op_num_threads", "inter_op_num_threads"):
        if getattr(options, name) < 0:
            raise InvalidArgument(f"option '{name}' is {getattr(options, name)}")


def threads_of(options: SessionOptions) -> int | None:
    """Return on how many threads kernels run; None for all processors."""
    threads = options.intra_op_num_threads
    if options.execution_mode is ExecutionMode.ORT_PARALLEL and threads:
        return max(threads, options.inter_op_num_threads)
    return threads or None


def _add(entries: dict[str, str], key: str, value: str, hints: tuple[str, ...]) -> None:
    if key not in hints:
        message = f"Inlay has no configuration entry '{key}' (= '{value}'); {suggestion(key, hints)}"
        raise NotOffered(message.rstrip("; "))
    entries[key] = value


def _entry(entries: dict[str, str], key: str) -> str:
    if key not in entries:
        raise InvalidArgument(f"no configuration entry '{key}' was added")
    return entries[key]
