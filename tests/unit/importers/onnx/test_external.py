"""Files beside a model: which it may name, through which links, and how trouble is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inlay.base.diagnostics import CompileError
from inlay.importers.onnx.graph import import_model, load_model
from inlay.ops.table import table
from tests.unit.importers.onnx.models import model, run, value

W = np.arange(4, dtype=np.float32)


def external(name: str, location: str, offset: int = 0) -> TensorProto:
    """Return a tensor of four numbers whose bytes are elsewhere."""
    t = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[4])
    t.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", str(offset)), ("length", "16")):
        t.external_data.add(key=key, value=text)
    return t


def adding(*tensors: TensorProto) -> onnx.ModelProto:
    """Return a model that adds tensors to its input."""
    names = ["x", *(t.name for t in tensors)]
    m = model([helper.make_node("Sum", names, ["y"])], [value("x", [4])], [value("y", [4])])
    m.graph.initializer.extend(tensors)
    return m


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def link(path: Path, target: Path | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


def check(path: Path) -> None:
    """Check that a model reads and adds its weights."""
    np.testing.assert_array_equal(run(load_model(path, table()), {"x": W})["y"], W + W)


def refusals(path: Path) -> list[str]:
    with pytest.raises(CompileError) as failure:
        load_model(path, table())
    assert set(failure.value.ids) == {"import.external-data"}
    return [d.message for d in failure.value.diagnostics]


ONE = adding(external("w", "w.bin")).SerializeToString()


def test_a_cache_of_one_folder(tmp_path: Path) -> None:
    """Files by their hash in one folder; a folder of relative links for each version."""
    write(tmp_path / "blobs" / "5d41", ONE)
    write(tmp_path / "blobs" / "7d79", W.tobytes())
    view = tmp_path / "snapshots" / "main" / "onnx"
    link(view / "w.bin", "../../../blobs/7d79")
    check(link(view / "model.onnx", "../../../blobs/5d41"))


def test_a_cache_of_many_folders(tmp_path: Path) -> None:
    """Each file by its hash in a folder of its own, and the view is elsewhere."""
    stored = write(tmp_path / "cache" / "5d" / "41" / "m", ONE)
    weights = write(tmp_path / "cache" / "7d" / "79" / "w", W.tobytes())
    view = tmp_path / "work"
    link(view / "w.bin", weights)
    check(link(view / "model.onnx", stored))


def test_a_folder_that_is_a_link(tmp_path: Path) -> None:
    write(tmp_path / "v1" / "model.onnx", ONE)
    write(tmp_path / "v1" / "w.bin", W.tobytes())
    check(link(tmp_path / "current", "v1") / "model.onnx")


def test_a_link_to_a_model_with_its_files(tmp_path: Path) -> None:
    stored = write(tmp_path / "models" / "m.onnx", ONE)
    write(tmp_path / "models" / "w.bin", W.tobytes())
    check(link(tmp_path / "work" / "m.onnx", stored))


def test_a_link_inside_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "data" / "w", W.tobytes())
    link(tmp_path / "w.bin", "data/w")
    check(write(tmp_path / "m.onnx", ONE))


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, is_linked: bool) -> None:
    """Also where the model is a link into the same repository, which may have come with it."""
    write(tmp_path / "secret" / "w", W.tobytes())
    repository = tmp_path / "repository"
    path = write(repository / "store" / "m.onnx", ONE)
    if is_linked:
        path = link(repository / "view" / "m.onnx", path)
    link(path.parent / "w.bin", tmp_path / "secret" / "w")
    (message,) = refusals(path)
    assert "is a link to" in message


@pytest.mark.parametrize("location", ["../w.bin", "a/../../w.bin", "{}/w.bin", "", "..", "."])
def test_paths_that_leave_the_folder(tmp_path: Path, location: str) -> None:
    """Whatever links there are: the model does not choose among other folders."""
    write(tmp_path / "blobs" / "w.bin", W.tobytes())
    view = tmp_path / "view"
    named = location.format(tmp_path / "blobs")
    write(tmp_path / "blobs" / "m", adding(external("w", named)).SerializeToString())
    assert len(refusals(link(view / "m.onnx", "../blobs/m"))) == 1


def test_trouble_with_a_file_is_told_once(tmp_path: Path) -> None:
    names = [external(f"w{i}", "w.bin", 16 * i) for i in range(5)]
    path = write(tmp_path / "m.onnx", adding(*names, external("v", "v.bin")).SerializeToString())
    first, second = refusals(path)
    assert "'w.bin'" in first
    assert "'v.bin'" in second
    write(tmp_path / "v.bin", bytes(16))
    write(tmp_path / "w.bin", bytes(16))
    (short,) = refusals(path)
    assert "'w1' needs bytes 16 to 32 of 'w.bin', which has 16" in short
    with pytest.raises(CompileError) as failure:
        import_model(adding(*names), table())
    assert len(failure.value.diagnostics) == 1


def test_attributes_may_be_stored_beside_the_model(tmp_path: Path) -> None:
    constant = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(W))
    constant.attribute[0].t.CopyFrom(external("", "w.bin"))
    nodes = [constant, helper.make_node("Add", ["x", "w"], ["y"])]
    m = model(nodes, [value("x", [4])], [value("y", [4])])
    write(tmp_path / "w.bin", W.tobytes())
    check(write(tmp_path / "m.onnx", m.SerializeToString()))
