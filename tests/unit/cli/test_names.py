"""Names from a model never reach the terminal raw: no command, no direction of writing, no new line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

import inlay
from inlay.base.diagnostics import InlayError, diagnostic, printable, render
from inlay.base.instrument import Event, EventKind
from inlay.base.span import Source
from inlay.cli._progress import _Watcher
from inlay.cli.main import main

EVIL = "\x1b]0;owned\x07\x1b[2J\rerror[fake]: none\nerror[fake]: none\u202e\u2066\x00\x9b31m\u2028\x7f"
EVIL_TEXT = EVIL.replace("\x00", "")
"""Without a zero, which neither files nor arguments may have in their names."""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("INLAY_CACHE", str(tmp_path_factory.getbasetemp() / "inlay-cache"))


def evil(what):
    return f"{what}{EVIL_TEXT}"


def hostile(path, *, broken=""):
    """Write a model all of whose names are hostile."""
    x, w, y = evil("x"), evil("w"), evil("y")
    nodes = [
        helper.make_node("MatMul", [x, w], [evil("a")], name=evil("node"), doc_string=evil("doc")),
        helper.make_node("Softmax", [evil("a")], [y], name=evil("last")),
    ]
    if broken == "operator":
        nodes[1].op_type = evil("Op")
    if broken == "domain":
        nodes[1].domain = evil("domain")
    if broken == "attribute":
        nodes[1].attribute.append(helper.make_attribute(evil("attribute"), 1))
    if broken == "value":
        nodes[1].input[0] = evil("nobody")
    if broken == "twice":
        nodes[1].output[0] = evil("a")
    if broken == "dim":
        nodes.append(helper.make_node("Add", [x, y], [evil("z")], name=evil("sum")))
    rows, columns = evil("rows"), 4
    graph = helper.make_graph(
        nodes,
        evil("graph"),
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [rows, columns])],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, [rows, 8])],
        [numpy_helper.from_array(np.ones((4, 8), np.float32), w)],
    )
    if broken == "data":
        tensor = graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=evil("data"))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name=evil("made by")
    )
    model.metadata_props.add(key=evil("key"), value=evil("value"))
    save(model, path)
    return str(path)


def assert_clean(text):
    bad = sorted({c for c in text if not c.isprintable() and c != "\n"})
    assert not bad, (bad, text)
    assert not any(line.startswith("error[fake]") for line in text.splitlines()), text


def speak(capsys, words, codes=(0, 1, 2, 3)):
    code = main(words)
    said = capsys.readouterr()
    assert code in codes, said.err
    assert_clean(said.out + said.err)
    code = main([*words, "--json"])
    said = capsys.readouterr()
    assert all(c.isprintable() or c == "\n" for c in said.out.replace("\x7f", "")), said.out
    assert_clean(said.err)
    json.loads(said.out)


COMMANDS = [
    "run M --kernels --profile --timings",
    "run M --inputs I",
    "run M --inputs J",
    "run M --dim rows=3",
    "run M --dim E=3",
    "run M --pin E=cpu",
    "run M --pin *=E",
    "run M --typical E=3",
    "run M --board E",
    "run M --board host_two --kernels",
    "compile M -o O --kernels",
    "compile M -o E",
    "run O --kernels",
    "explain M --all",
    "explain M --all --board soc_npus",
    "explain M --op E",
    "opt M --remarks",
    "opt M --passes to-anf,fuse-ops --remarks",
    "opt M --passes E",
    "bench M --rounds 1 --seconds 0",
    "run E",
    "E",
    "run --E",
    "run M --mode E",
    "errors E",
    "targets show E",
    "targets check B",
    "run M --extern X",
    "run M --cache E/E",
    "run M --trace E/E",
    "serve --options E",
    "serve --listen E",
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("line", COMMANDS)
def test_commands_show_hostile_names_as_escapes(line, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board = tmp_path / "b.toml"
    board.write_text('summary = "a\\u001b[2Jb"\n[[device]]\nname = "d\\u001b[2J"\narch = "\\u001b[2J"\n')
    (tmp_path / "x.py").write_text(f"raise KeyError({EVIL!r})")
    np.savez(tmp_path / "i.npz", **{evil("x"): np.ones((3, 4), np.float32)})
    np.savez(tmp_path / "j.npz", **{evil("other"): np.ones((3, 4), np.float32)})
    names = {
        "M": hostile(tmp_path / f"{evil('m')[:40]}.onnx"),
        "I": "i.npz",
        "J": "j.npz",
        "O": "o.inlay",
        "B": str(board),
        "X": "x.py",
    }
    if line.startswith("run O"):
        inlay.compile(names["M"]).save("o.inlay")
    words = [
        names.get(word, word).replace("E", EVIL_TEXT) if word not in names else names[word]
        for word in line.split()
    ]
    speak(capsys, words)


@pytest.mark.parametrize("broken", ["operator", "domain", "attribute", "value", "twice", "dim", "data"])
@pytest.mark.parametrize("command", ["run", "explain", "opt"])
def test_errors_about_hostile_models_are_lines_of_ours(broken, command, tmp_path, capsys):
    speak(capsys, [command, hostile(tmp_path / "m.onnx", broken=broken)])
    if command == "run" and broken != "attribute":
        with pytest.raises(InlayError) as failure:
            inlay.compile(tmp_path / "m.onnx")
        assert_clean(str(failure.value))


def test_text_programs_with_strange_characters_are_shown_as_escapes(tmp_path, capsys):
    program = tmp_path / "p.inl"
    for text in (
        f"fn main(x: Tensor[2, f32]) {{ {EVIL} }}",
        f'entry main("{EVIL}") -> ("{EVIL}");',
        f"fn main(x: Tensor[2, f32]) {{ nope(x) }} // {EVIL}",
    ):
        program.write_text(text)
        speak(capsys, ["run", str(program)], codes=(1,))


def test_every_part_of_a_finding_is_on_its_own_lines():
    source = Source(f"f{EVIL}", f"a{EVIL} b\nsecond")
    shown = render(
        diagnostic(
            "type.mismatch",
            f"found {EVIL}",
            span=source.span(0, 2),
            labels=[(source.span(3, 5), EVIL), (Source(EVIL, EVIL).span(0, 1), EVIL)],
            notes=[EVIL],
            hint=EVIL,
        )
    )
    assert_clean(shown)
    assert "\\x1b]0;owned\\x07" in shown


def test_progress_is_escaped_too():
    said = []
    watcher = _Watcher(said.append, 0)
    watcher.emit(Event(EventKind.BEGIN, evil("pass"), 0))
    watcher.emit(Event(EventKind.BEGIN, evil("kernel"), 3_000_000_000))
    assert said
    for text in said:
        assert_clean(text)


def test_paths_that_are_no_text_are_paths(tmp_path, capsys):
    program, made = tmp_path / "b\udce9d.inl", tmp_path / "o\udce9d.inlay"
    program.write_text("fn main(x: Tensor[2, f32]) { neg(x) }")
    for words in (
        ["run", str(program)],
        ["compile", str(program), "-o", str(made)],
        ["run", str(made)],
        ["explain", str(program)],
        ["opt", str(program)],
    ):
        speak(capsys, words, codes=(0,))


def test_a_stream_that_takes_nothing_is_an_error_and_no_fault():
    for words in ("targets", "targets --json"):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "inlay", *words.split()],
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode in (1, 120)
        assert "No space left on device" in done.stderr
        assert "Traceback" not in done.stderr


def test_what_shows_itself_is_left_alone():
    assert printable("gr\u00fc\u00dfe \u4e16\u754c") == "gr\u00fc\u00dfe \u4e16\u754c"
    assert printable("a\nb", lines=True) == "a\nb"
    assert printable("a\nb") == "a\\nb"


def test_a_program_of_hostile_names_reads_back(tmp_path, capsys):
    model, first, second = hostile(tmp_path / "m.onnx"), tmp_path / "a.inl", tmp_path / "b.inl"
    assert main(["opt", model, "-o", str(first)]) == 0
    assert_clean(first.read_text())
    assert main(["opt", str(first), "-o", str(second)]) == 0
    assert first.read_text() == second.read_text()
