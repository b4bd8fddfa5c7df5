from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")

class Failure(RuntimeError): ...

class Result:
    @property
    def dtype(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class Executable:
    def call(self, entry: int, /, *inputs: Any) -> list[Result]: ...
    def call_structured(
        self, entry: int, counts: bytes, is_bf16: bytes, /, *tensors: Any
    ) -> tuple[list[Result], bytes]: ...
    def events(self) -> list[tuple[int, str, int, int, int, int, int, int, int, str, int]]: ...
    def is_lost(self) -> bool: ...
    def live_objects(self) -> int: ...

def load(
    path: str | None,
    source: Any,
    threads: int,
    stack_bytes: int,
    cache_bytes: int,
    hand_off_ns: int,
    check_constants: int,
    activations: int,
    callbacks: dict[int, Any],
    symbols: dict[str, int],
    mode: int = 0,
    chooses: bool = False,
    seed: int = 0,
    has_events: bool = False,
    /,
) -> Executable: ...
def limited(flag: bytearray, deadline: int, function: Callable[[], _T], /) -> _T: ...

def drivers() -> tuple[dict[str, int], int]: ...
def server() -> dict[str, int]: ...
