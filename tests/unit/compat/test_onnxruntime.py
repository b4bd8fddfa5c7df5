"""Sessions behind the interface of onnxruntime, beside those of onnxruntime itself."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import inlay.compat.onnxruntime as ours
from inlay.base.diagnostics import InlayError
from inlay.compat.onnxruntime import options
from tests.unit.importers.onnx.models import model, value

theirs = pytest.importorskip("onnxruntime")

pytestmark = [
    pytest.mark.llvm,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # Other tests of the process keep the peer too.
    pytest.mark.filterwarnings("ignore:imported before, and still with the other:UserWarning"),
]

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def scaled() -> onnx.ModelProto:
    """y = x * w, z = tanh(y), and the number of rows."""
    made = model(
        [
            helper.make_node("Mul", ["x", "w"], ["y"]),
            helper.make_node("Tanh", ["y"], ["z"]),
            helper.make_node("Shape", ["x"], ["n"], end=1),
        ],
        [value("x", ["rows", 4]), value("w", [])],
        [value("z", ["rows", 4]), value("y", ["rows", 4]), value("n", [1], TensorProto.INT64)],
        producer_name="tests",
        domain="org.example",
        model_version=7,
        doc_string="what it does",
        ir_version=9,
    )
    made.graph.doc_string = "what the graph does"
    helper.set_model_props(made, {"labels": "yes\nno", "kind": "test"})
    return made


@pytest.fixture(scope="module")
def pair():
    data = scaled().SerializeToString()
    return ours.InferenceSession(data), theirs.InferenceSession(data)


FEED = {"x": X, "w": np.array(3, np.float32)}


def refusal(session, *arguments) -> str:
    """Return the name of the exception of a run."""
    with pytest.raises(Exception) as failure:
        session.run(*arguments)
    return type(failure.value).__name__


@pytest.mark.parametrize("names", [None, [], ["y"], ["n", "z"], ["y", "z", "n"]])
def test_outputs_by_choice_and_in_the_order_asked_for(pair, names):
    feed = {"x": X, "w": np.array(3, np.float32)}
    for found, want in zip(*(session.run(names, feed) for session in pair), strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-6)


def test_what_a_session_says_of_its_model(pair):
    for found, want in zip(pair[0].get_inputs(), pair[1].get_inputs(), strict=True):
        assert (found.name, found.type, found.shape) == (want.name, want.type, want.shape)
    for found, want in zip(pair[0].get_outputs(), pair[1].get_outputs(), strict=True):
        assert (found.name, found.type, found.shape) == (want.name, want.type, want.shape)
    found, want = (session.get_modelmeta() for session in pair)
    for field in (
        "producer_name",
        "graph_name",
        "graph_description",
        "domain",
        "description",
        "version",
        "custom_metadata_map",
    ):
        assert getattr(found, field) == getattr(want, field), field
    assert pair[0].get_providers() == ["CPUExecutionProvider"]
    assert pair[0].get_provider_options() == {"CPUExecutionProvider": {}}


@pytest.mark.parametrize(
    ("elem_type", "shape"),
    [
        (TensorProto.FLOAT, ["n", None, 3]),
        (TensorProto.DOUBLE, []),
        (TensorProto.FLOAT16, [2]),
        (TensorProto.INT64, [None]),
        (TensorProto.UINT8, ["a", "a"]),
        (TensorProto.BOOL, [1]),
        (TensorProto.STRING, ["n"]),
    ],
)
def test_types_and_shapes_are_spelled_alike(elem_type, shape):
    made = model(
        [helper.make_node("Identity", ["x"], ["y"])],
        [value("x", shape, elem_type)],
        [value("y", shape, elem_type)],
        ir_version=9,
    ).SerializeToString()
    sessions = ours.InferenceSession(made), theirs.InferenceSession(made)
    found, want = (session.get_inputs()[0] for session in sessions)
    assert (found.type, found.shape) == (want.type, want.shape)


def test_what_a_model_does_not_say_of_its_outputs_is_inferred():
    made = scaled()
    for output in made.graph.output:
        output.ClearField("type")
    data = made.SerializeToString()
    sessions = ours.InferenceSession(data), theirs.InferenceSession(data)
    for found, want in zip(*(session.get_outputs() for session in sessions), strict=True):
        assert (found.name, found.type, found.shape) == (want.name, want.type, want.shape)


@pytest.mark.parametrize(
    "arguments",
    [
        (None, {"x": X.astype(np.float64), "w": FEED["w"]}),
        (None, {"x": X[:, :3], "w": FEED["w"]}),
        (None, {"x": X[0], "w": FEED["w"]}),
        (None, {"x": X}),
        (None, {"x": X, "w": np.array(3, np.float32), "v": X}),
        (["absent"], {"x": X, "w": np.array(3, np.float32)}),
    ],
    ids=["type", "size", "rank", "missing", "unknown", "output"],
)
def test_what_does_not_fit_raises_the_exception_of_that_name(pair, arguments):
    kinds = [refusal(session, *arguments) for session in pair]
    assert kinds[0] == kinds[1]


def test_an_exception_carries_the_diagnostics(pair):
    with pytest.raises(ours.InvalidArgument, match=r"expected \[rows, 4\]|axis 1") as failure:
        pair[0].run(None, {"x": X[:, :3], "w": np.array(3, np.float32)})
    assert isinstance(failure.value.__cause__, InlayError)


def test_files_of_any_name_and_files_that_are_none(tmp_path):
    (tmp_path / "model.bin").write_bytes(scaled().SerializeToString())
    assert ours.InferenceSession(tmp_path / "model.bin").get_inputs()[0].name == "x"
    assert ours.InferenceSession(str(tmp_path / "model.bin")).get_modelmeta().version == 7
    (tmp_path / "damaged.onnx").write_bytes(b"no model")
    capi = theirs.capi.onnxruntime_pybind11_state
    for name, kind in (("absent.onnx", "NoSuchFile"), ("damaged.onnx", "InvalidProtobuf")):
        with pytest.raises(getattr(capi, kind)):
            theirs.InferenceSession(tmp_path / name)
        with pytest.raises(getattr(ours, kind)):
            ours.InferenceSession(tmp_path / name)
    with pytest.raises(TypeError):
        ours.InferenceSession(3)


def test_lists_and_numbers_get_the_type_of_the_input(pair):
    feed = {"x": X.tolist(), "w": 3}
    np.testing.assert_allclose(pair[0].run(["y"], feed)[0], X * 3)
    with pytest.raises(ours.InvalidArgument, match="input 'x'"):
        pair[0].run(["y"], {"x": [[1], [2, 3]], "w": 3})


def test_a_model_that_cannot_be_compiled_is_not_implemented():
    made = model(
        [helper.make_node("Strange", ["x"], ["y"], domain="org.example")],
        [value("x", [2])],
        [value("y", [2])],
        ir_version=9,
    )
    made.opset_import.append(helper.make_opsetid("org.example", 1))
    with pytest.raises(ours.NotImplemented, match=r"org\.example\.Strange"):
        ours.InferenceSession(made.SerializeToString())


# ---------------------------------------------------------------------- options


def test_every_field_of_the_options_is_used_a_hint_or_refused():
    for our, their in (
        (ours.SessionOptions(), theirs.SessionOptions()),
        (ours.RunOptions(), theirs.RunOptions()),
    ):
        fields = [n for n in dir(their) if n[0] != "_" and not callable(getattr(their, n))]
        for name in fields:
            found, want = getattr(our, name), getattr(their, name)
            assert found == (want if isinstance(want, bool | str) else int(want)), name
            setattr(our, name, found)


def test_the_page_lists_every_option():
    page = (Path(__file__).parents[3] / "docs/reference/onnxruntime.md").read_text("utf-8")
    tables = (options.USED, options.HINTS, options.REFUSED, options.RUN_HINTS)
    names = [*options.ENTRY_HINTS, *options.RUN_ENTRY_HINTS, *(n for t in tables for n in t)]
    assert [name for name in names if f"`{name}`" not in page] == []


def test_an_option_that_nobody_knows_is_refused_by_name():
    chosen = ours.SessionOptions()
    with pytest.raises(AttributeError, match="did you mean intra_op_num_threads"):
        chosen.intra_op_num_thread = 2
    with pytest.raises(TypeError, match="'intra_op_num_threads' is str"):
        chosen.intra_op_num_threads = "2"
    with pytest.raises(ours.NotImplemented, match=r"session\.intra_op\.allow_spinning"):
        chosen.add_session_config_entry("session.intra_op.alow_spinning", "0")
    chosen.add_session_config_entry("session.intra_op.allow_spinning", "0")
    assert chosen.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    with pytest.raises(ours.NotImplemented, match="built for onnxruntime"):
        chosen.register_custom_ops_library("lib.so")
    chosen.optimized_model_filepath = "out.onnx"
    with pytest.raises(ours.NotImplemented, match="optimized_model_filepath"):
        ours.InferenceSession(scaled().SerializeToString(), chosen)
    with pytest.raises(TypeError, match="sess_option"):
        ours.InferenceSession(scaled().SerializeToString(), sess_option=chosen)
    with pytest.raises(ours.InvalidArgument, match="not of"):
        ours.InferenceSession(scaled().SerializeToString(), theirs.SessionOptions())


def test_threads_and_mode_reach_the_executable():
    chosen = ours.SessionOptions()
    chosen.intra_op_num_threads = 3
    chosen.graph_optimization_level = ours.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ours.InferenceSession(scaled().SerializeToString(), chosen)
    assert session.executable.threads == 3
    chosen.execution_mode = ours.ExecutionMode.ORT_PARALLEL
    chosen.inter_op_num_threads = 4
    assert ours.InferenceSession(scaled().SerializeToString(), chosen).executable.threads == 4


def test_dims_get_the_sizes_that_options_name():
    chosen, data = ours.SessionOptions(), scaled().SerializeToString()
    chosen.add_free_dimension_override_by_name("rows", 3)
    session = ours.InferenceSession(data, chosen)
    assert session.get_inputs()[0].shape == [3, 4]
    np.testing.assert_allclose(session.run(["y"], FEED)[0], X * 3)
    with pytest.raises(ours.InvalidArgument):
        session.run(["y"], {"x": X[:2], "w": FEED["w"]})
    chosen.add_free_dimension_override_by_name("columns", 3)
    with pytest.raises(ours.InvalidArgument, match="'columns'"):
        ours.InferenceSession(data, chosen)


def test_providers_are_the_processor_or_a_board():
    data = scaled().SerializeToString()
    with pytest.warns(UserWarning, match="CUDAExecutionProvider"):
        session = ours.InferenceSession(data, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    board = ("InlayExecutionProvider", {"board": "host_two", "verify": True})
    session = ours.InferenceSession(data, providers=[board])
    assert session.get_providers() == ["InlayExecutionProvider", "CPUExecutionProvider"]
    np.testing.assert_allclose(session.run(["y"], FEED)[0], X * 3)
    hint = {"arena_extend_strategy": "kSameAsRequested"}
    ours.InferenceSession(data, providers=["CPUExecutionProvider"], provider_options=[hint])
    for providers in (
        [("CPUExecutionProvider", {"cores": 2})],
        [("InlayExecutionProvider", {"bord": "host_two"})],
    ):
        with pytest.raises(ours.InvalidArgument, match="cores|bord"):
            ours.InferenceSession(data, providers=providers)


def test_a_provider_may_compute_some_outputs_alone():
    chosen = [("InlayExecutionProvider", {"outputs": ["y"]})]
    session = ours.InferenceSession(scaled().SerializeToString(), providers=chosen)
    assert [o.name for o in session.get_outputs()] == ["y"]
    np.testing.assert_allclose(session.run(None, FEED)[0], X * 3)


def test_a_run_stops_when_its_options_say_so(pair):
    stop = ours.RunOptions()
    stop.terminate = True
    with pytest.raises(ours.Fail, match="terminate"):
        pair[0].run(None, FEED, stop)
    stop.terminate = False
    assert len(pair[0].run(None, FEED, stop)) == 3

    body = helper.make_graph(
        [helper.make_node("Tanh", ["s"], ["t"]), helper.make_node("Identity", ["c"], ["again"])],
        "body",
        [value("i", [], TensorProto.INT64), value("c", [], TensorProto.BOOL), value("s", [4])],
        [value("again", [], TensorProto.BOOL), value("t", [4])],
    )
    endless = model(
        [helper.make_node("Loop", ["m", "go", "x"], ["y"], body=body)],
        [value("x", [4]), value("m", [], TensorProto.INT64)],
        [value("y", [4])],
        {"go": np.array(True)},
        ir_version=9,
    )
    session = ours.InferenceSession(endless.SerializeToString())
    timer = threading.Timer(0.2, setattr, (stop, "terminate", True))
    timer.start()
    with pytest.raises(ours.Fail, match="cancelled|given up|stop"):
        session.run(None, {"x": X[0], "m": np.array(2**40)}, stop)
    timer.join()


def test_a_profile_is_a_timeline(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chosen = ours.SessionOptions()
    chosen.enable_profiling = True
    session = ours.InferenceSession(scaled().SerializeToString(), chosen)
    session.run(None, FEED)
    name = session.end_profiling()
    assert json.loads(Path(name).read_text())
    assert name.startswith("onnxruntime_profile_")


# ---------------------------------------------------------------------- values and bindings


def test_values_and_bindings_go_in_and_out(pair):
    results = []
    for ort, session in zip((ours, theirs), pair, strict=True):
        x = ort.OrtValue.ortvalue_from_numpy(X)
        w = ort.OrtValue.ortvalue_from_numpy(np.array(3, np.float32))
        assert (x.shape(), x.data_type(), x.element_type()) == ([3, 4], "tensor(float)", 1)
        (y,) = session.run_with_ort_values(["y"], {"x": x, "w": w})
        np.testing.assert_allclose(y.numpy(), X * 3)
        binding = session.io_binding()
        target = np.zeros((3, 4), np.float32)
        binding.bind_cpu_input("x", X)
        binding.bind_ortvalue_input("w", w)
        binding.bind_output("n")
        binding.bind_output("y", "cpu", 0, np.float32, [3, 4], target.ctypes.data)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(target, X * 3)
        results.append([np.asarray(a) for a in binding.copy_outputs_to_cpu()])
    for found, want in zip(*results, strict=True):
        np.testing.assert_allclose(found, want)


def test_a_sequence_is_a_list():
    made = model(
        [helper.make_node("SequenceAt", ["s", "i"], ["y"])],
        [
            helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, ["n"]),
            value("i", [], TensorProto.INT64),
        ],
        [value("y", ["n"])],
        ir_version=9,
    ).SerializeToString()
    sessions = ours.InferenceSession(made), theirs.InferenceSession(made)
    assert sessions[0].get_inputs()[0].type == sessions[1].get_inputs()[0].type
    feed = {"s": [X[0], X[1, :2]], "i": np.array(1)}
    for session in sessions:
        np.testing.assert_array_equal(session.run(None, feed)[0], X[1, :2])


# ---------------------------------------------------------------------- standing in


def test_a_program_that_imports_onnxruntime_gets_inlay_inside():
    with ours.installed(cache="none") as installed:
        found = importlib.import_module("onnxruntime")
        state = importlib.import_module("onnxruntime.capi.onnxruntime_pybind11_state")
        assert found is installed
        assert issubclass(found.InferenceSession, ours.InferenceSession)
        assert state.InvalidArgument is ours.InvalidArgument
        assert "CPUExecutionProvider" in found.get_available_providers()
        assert importlib.util.find_spec("onnxruntime") is not None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("onnxruntime.quantization")
        session = found.InferenceSession(scaled().SerializeToString())
    assert importlib.import_module("onnxruntime") is theirs
    assert session.defaults == {"cache": "none"}
    np.testing.assert_allclose(session.run(["y"], FEED)[0], X * 3)


def test_modules_that_keep_the_other_one_are_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in (
        ("keeps_the_module", "import onnxruntime"),
        ("keeps_the_class", "from onnxruntime import InferenceSession"),
        ("keeps_nothing", "import numpy"),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        importlib.import_module(name)
    try:
        with pytest.warns(UserWarning, match="keeps_the_class, keeps_the_module[;,]"), ours.installed():
            pass
    finally:
        for name in ("keeps_the_module", "keeps_the_class", "keeps_nothing"):
            del sys.modules[name]
    with ours.installed() as outer, ours.installed() as inner:
        assert importlib.import_module("onnxruntime") is inner is not outer


def test_it_is_taken_back_when_something_fails_inside():
    with pytest.raises(KeyError), ours.installed():
        raise KeyError
    assert importlib.import_module("onnxruntime") is theirs


def test_onnxruntime_is_not_needed(tmp_path):
    (tmp_path / "m.onnx").write_bytes(scaled().SerializeToString())
    script = """
        import sys
        sys.modules["onnxruntime"] = None
        from inlay.compat import onnxruntime
        onnxruntime.install()
        import onnxruntime as ort
        print(ort.InferenceSession(sys.argv[1]).get_inputs()[0].name)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "m.onnx")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["x"], done.stderr
