"""The facade: what a user of the Python interface meets."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import inlay
from inlay.api import compilation
from inlay.base.metadata import Metadata
from inlay.bytecode.container import MAGIC
from inlay.ir.printer import print_module

SRC = Path(inlay.__file__).parent.parent


def tiny_model(path: Path) -> Path:
    """Write `y = relu(x) + x` over [n, 4] and a check of `z: [n]`."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="r"),
        helper.make_node("Add", ["r", "x"], ["s"], name="s"),
        helper.make_node("Unsqueeze", ["z", "axes"], ["zz"], name="zz"),
        helper.make_node("Mul", ["s", "zz"], ["y"], name="y"),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n"]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return inlay.compile(tiny_model(folder / "tiny.onnx"), threads=1, cache=str(folder / "cache"))


X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
Z = np.arange(3, dtype=np.float32)
Y = (np.maximum(X, 0) + X) * Z[:, None]


def test_run_by_name_and_by_position(executable):
    np.testing.assert_allclose(executable.run({"z": Z, "x": X})["y"], Y)
    np.testing.assert_allclose(executable(X, Z), Y)


def test_layouts_that_are_not_contiguous_are_copied(executable):
    strided = np.repeat(X, 2, axis=1)[:, ::2]
    assert not strided.flags.c_contiguous
    np.testing.assert_allclose(executable(np.asfortranarray(X), Z), Y)
    np.testing.assert_allclose(executable(strided, Z), Y)


def test_empty_and_nan(executable):
    assert executable(X[:0], Z[:0]).shape == (0, 4)
    spoiled = X.copy()
    spoiled[0, 0] = np.nan
    assert np.isnan(executable(spoiled, Z + 1)[0, 0])


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"x": X}, ["z"]),
        ({"x": X, "q": Z}, ["q"]),
        ({"x": X.astype(np.float64), "z": Z}, ["x", "f32", "f64"]),
        ({"x": X[0], "z": Z}, ["x", "[4]"]),
        ({"x": X[:, :3].copy(), "z": Z}, ["x", "4", "3"]),
        ({"x": X, "z": Z[:2].copy()}, ["z", "2", "3"]),
    ],
)
def test_bad_input_is_one_sentence_and_the_executable_stays_usable(executable, inputs, words):
    with pytest.raises(inlay.RunError) as failure:
        executable.run(inputs)
    text = str(failure.value)
    for word in words:
        assert word in text, text
    assert all(d.message and "\n" not in d.message for d in failure.value.diagnostics)
    np.testing.assert_allclose(executable(X, Z), Y)


def test_a_saved_executable_runs_without_compiler_and_importer(executable, tmp_path):
    path = tmp_path / "tiny.inlay"
    executable.save(path)
    np.savez(tmp_path / "io.npz", x=X, z=Z, y=Y)
    script = f"""
        import sys
        class Refuse:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] in ("llvmlite", "onnx"):
                    raise ImportError(name)
        sys.meta_path.insert(0, Refuse())
        import numpy as np
        import inlay
        io = np.load({str(tmp_path / "io.npz")!r})
        executable = inlay.load_executable({str(path)!r}, threads=2)
        assert np.allclose(executable.run({{"x": io["x"], "z": io["z"]}})["y"], io["y"])
        heavy = [m for m in sys.modules if m.startswith(("inlay.ir", "inlay.ops", "inlay.loop"))]
        assert not heavy, heavy
    """
    run_python(script)


def test_importing_imports_little():
    run_python(
        """
        import sys
        import inlay
        assert "numpy" not in sys.modules
        assert [m for m in sys.modules if m.startswith("inlay.")] == []
        assert "compile" in dir(inlay)
        try:
            inlay.nothing
        except AttributeError as failure:
            assert "nothing" in str(failure)
        """
    )


def test_equal_bytes_under_different_hash_seeds(tmp_path):
    model = tiny_model(tmp_path / "tiny.onnx")
    script = """
        import sys
        from inlay.api import compilation
        from inlay.bytecode.writer import to_bytes
        program = compilation(sys.argv[1], cache="none").program
        open(sys.argv[2], "wb").write(to_bytes(program))
    """
    for seed in ("0", "1"):
        run_python(script, str(model), str(tmp_path / seed), PYTHONHASHSEED=seed)
    assert (tmp_path / "0").read_bytes() == (tmp_path / "1").read_bytes()


def test_files_are_recognized(tmp_path, executable):
    with pytest.raises(inlay.CompileError) as failure:
        inlay.load(tmp_path / "absent.onnx")
    assert failure.value.ids == ("load.missing",)
    with pytest.raises(inlay.CompileError) as failure:
        inlay.load(tmp_path / "model.torch")
    assert failure.value.ids == ("load.unknown-format",)
    executable.save(tmp_path / "m.inlay")
    with pytest.raises(inlay.CompileError) as failure:
        inlay.load(tmp_path / "m.inlay")
    assert failure.value.ids == ("load.executable",)


def test_programs_come_in_bytes_models_and_open_files(tmp_path):
    path = tiny_model(tmp_path / "tiny.onnx")
    data = path.read_bytes()
    with path.open("rb") as stream:
        sources = [data, bytearray(data), memoryview(data), onnx.load(path), stream, io.BytesIO(data)]
        texts = {print_module(inlay.load(source)) for source in (*sources, str(path))}
    assert len(texts) == 1
    np.testing.assert_allclose(inlay.compile(data, threads=1)(X, Z), Y)
    program = "fn main(x: Tensor[2, f32]) -> Tensor[2, f32] { neg(x) }"
    assert "main" in inlay.load(io.StringIO(program)).functions


@pytest.mark.parametrize(
    ("source", "id"),
    [
        (b"no model", "import.not-onnx"),
        (b"", "import.not-onnx"),
        (onnx.ModelProto(), "import.not-onnx"),
        (MAGIC + b"rest", "load.executable"),
        (3, "load.unknown-format"),
        (None, "load.unknown-format"),
    ],
)
def test_what_is_no_program_is_refused(source, id):
    with pytest.raises(inlay.CompileError) as failure:
        inlay.load(source)
    assert failure.value.ids == (id,)


def test_a_program_of_which_nothing_can_run_is_refused_by_all_who_compile():
    text = "fn other(x: Tensor[4, f32]) -> Tensor[4, f32] { relu(x) }"
    for use in (inlay.compile, inlay.explain):
        with pytest.raises(inlay.CompileError, match="no function named 'main'") as failure:
            use(io.StringIO(text))
        assert failure.value.ids == ("name.unknown",)


def test_limits_hold_for_bytes_too(tmp_path):
    data = tiny_model(tmp_path / "tiny.onnx").read_bytes()
    for source in (data, io.BytesIO(data)):
        with pytest.raises(inlay.CompileError) as failure:
            inlay.load(source, max_file_bytes=len(data) - 1)
        assert failure.value.ids == ("import.too-large",)


def test_data_beside_a_model_that_has_no_path_is_in_a_folder_that_is_named(tmp_path):
    path = tiny_model(tmp_path / "tiny.onnx")
    model = onnx.load(path)
    weight = numpy_helper.from_array(np.ones(300, np.float32), "unused")
    model.graph.initializer.append(weight)
    onnx.save(model, path, save_as_external_data=True, location="data.bin", size_threshold=0)
    with pytest.raises(inlay.CompileError, match=r"folder=\.\.\.") as failure:
        inlay.load(path.read_bytes())
    assert set(failure.value.ids) == {"import.external-data"}
    assert inlay.load(path.read_bytes(), folder=tmp_path)
    with pytest.raises(inlay.CompileError, match="whose folder is known"):
        inlay.load(path, folder=tmp_path)


def test_an_unknown_option_is_refused(tmp_path):
    with pytest.raises(inlay.CompileError) as failure:
        inlay.compile(tiny_model(tmp_path / "tiny.onnx"), bord="host")
    assert failure.value.ids == ("option.unknown",)


def run_python(script: str, *arguments: str, **environment: str) -> None:
    """Run a script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )
    assert done.returncode == 0, done.stderr


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="asks Linux what is resident")
def test_constants_are_in_memory_once_and_only_when_they_are_read(tmp_path):
    size = 16 << 20
    weights = np.ones((1024, size // 4096), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "wide",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1024])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, weights.shape[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "wide.onnx")
    inlay.compile(tmp_path / "wide.onnx", cache="none").save(tmp_path / "wide.inlay")
    before = resident()
    loaded = inlay.load_executable(tmp_path / "wide.inlay", threads=1)
    assert resident() - before < size / 2
    np.testing.assert_array_equal(loaded(np.ones((1, 1024), np.float32)), 1024)
    assert size / 2 < resident() - before < size * 3 / 2


def noted_model() -> onnx.ModelProto:
    """Return a model that says a lot of itself."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Exp", ["y"], ["z"])],
        "noted",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 4]),
        ],
        doc_string="what the graph does",
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
        producer_name="tests",
        producer_version="2.1",
        domain="org.example",
        model_version=7,
        doc_string="what it does",
    )
    helper.set_model_props(model, {"labels": "yes\nno", "empty": ""})
    return model


def test_what_a_model_says_of_itself_goes_into_the_executable_and_its_file(tmp_path):
    module = inlay.load(noted_model())
    said = module.metadata
    assert (said.graph, said.producer, said.producer_version) == ("noted", "tests", "2.1")
    assert (said.domain, said.version, said.description) == ("org.example", 7, "what it does")
    assert said.graph_description == "what the graph does"
    assert dict(said.properties) == {"labels": "yes\nno", "empty": ""}
    executable = inlay.compile(module, threads=1)
    assert executable.metadata == said
    executable.save(tmp_path / "noted.inlay")
    assert inlay.load_executable(tmp_path / "noted.inlay", threads=1).metadata == said


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"model": 3}', '{"model": {"graph": 3, "properties": {"a": 1}, "b": ""}}']
)
def test_what_is_no_metadata_says_nothing(text):
    assert Metadata.from_text(text) == Metadata()


def test_modules_and_executables_are_shown_in_a_line(executable):
    module = inlay.load(noted_model())
    assert repr(module) == "<Module main: 1 function>"
    shown = repr(executable)
    assert shown == "<Executable main(x: f32 [n, 4], z: f32 [n]) -> (y: f32 [n, 4])>"
    hostile = noted_model()
    hostile.graph.input[0].name = hostile.graph.node[0].input[0] = "x\x1b[2J\n"
    assert "\n" not in repr(inlay.compile(hostile, threads=1))


def test_the_shape_of_a_spec_is_numbers_and_names(executable):
    assert [spec.shape for spec in executable.inputs] == [("n", 4), ("n",)]


def test_outputs_by_choice_when_it_runs():
    executable = inlay.compile(noted_model(), threads=1)
    for run in (executable.run, lambda *a, **k: executable.submit(*a, **k).result()):
        found = run({"x": X}, outputs=["z"])
        assert list(found) == ["z"]
        np.testing.assert_allclose(found["z"], np.exp(np.maximum(X, 0)), rtol=1e-6)
        assert list(run({"x": X}, outputs=["z", "y"])) == ["z", "y"]
        assert run({"x": X}, outputs=[]) == {}
        for asked in (["w"], "y"):
            with pytest.raises(inlay.RunError) as failure:
                run({"x": X}, outputs=asked)
            assert failure.value.ids == ("input.output",)


def test_outputs_by_choice_when_it_is_compiled():
    whole, part = (compilation(noted_model(), outputs=asked, cache="none") for asked in ((), ("y",)))
    assert whole.report.kernels
    assert [s.name for s in part.program.entries[0].outputs] == ["y"]
    assert "exp" not in " ".join(kernel.origin for kernel in part.report.kernels)
    executable = inlay.compile(noted_model(), threads=1, outputs=["z", "y"])
    assert [spec.name for spec in executable.outputs] == ["z", "y"]
    found = executable.run({"x": X})
    np.testing.assert_allclose(found["y"], np.maximum(X, 0))
    np.testing.assert_allclose(found["z"], np.exp(np.maximum(X, 0)), rtol=1e-6)
    with pytest.raises(inlay.CompileError, match="twice"):
        inlay.compile(noted_model(), outputs=["y", "y"])
    with pytest.raises(inlay.CompileError, match="'w', which is no output; there are y, z"):
        inlay.compile(noted_model(), outputs=["w"])


def test_outputs_whose_sizes_only_running_tells_can_be_chosen():
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["at"]), helper.make_node("Neg", ["x"], ["y"])],
        "some",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [
            helper.make_tensor_value_info("at", TensorProto.INT64, [1, None]),
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.array([0, 3, 0, 4], np.float32)
    for asked in (["at"], ["y"], ["y", "at"]):
        found = inlay.compile(model, threads=1, outputs=asked, verify=True).run({"x": x})
        assert list(found) == asked
        for name, want in (("at", [[1, 3]]), ("y", -x)):
            if name in asked:
                np.testing.assert_array_equal(found[name], want)


def test_outputs_of_a_program_that_names_none():
    text = "fn main(x: Tensor[2, f32]) -> (Tensor[2, f32], Tensor[2, f32]) { (neg(x), exp(x)) }"
    executable = inlay.compile(io.StringIO(text), outputs=["output_1"], threads=1)
    x = np.array([1, 2], np.float32)
    np.testing.assert_allclose(executable.run({"x": x})["output_1"], np.exp(x), rtol=1e-6)


def test_a_program_that_calls_its_entry_keeps_all_outputs():
    text = """
        entry main("x") -> ("a", "b");
        fn main(x: Tensor[2, f32]) -> (Tensor[2, f32], Tensor[2, f32]) { (x, @again(x)) }
        fn again(x: Tensor[2, f32]) -> Tensor[2, f32] { @main(x).0 }
    """
    with pytest.raises(inlay.UnsupportedError) as failure:
        inlay.compile(io.StringIO(text), outputs=["a"])
    assert failure.value.ids == ("entry.called",)


def test_executables_come_in_bytes_and_open_files_too(tmp_path, executable):
    executable.save(tmp_path / "t.inlay")
    data = (tmp_path / "t.inlay").read_bytes()
    for source in (data, bytearray(data), memoryview(data), io.BytesIO(data)):
        loaded = inlay.load_executable(source, threads=1)
        np.testing.assert_allclose(loaded(X, Z), Y)
        loaded.save(tmp_path / "again.inlay")
        assert (tmp_path / "again.inlay").read_bytes() == data
    for damaged in (b"", b"x", data[:-1], data[:200]):
        with pytest.raises(inlay.InlayError) as failure:
            inlay.load_executable(damaged)
        assert failure.value.ids[0].startswith("container.")
