"""Every flag of every command takes every kind of bad value: a word about it, never a fault of ours."""

from __future__ import annotations

import argparse
import json
import random
import signal
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from inlay.cli import serve
from inlay.cli._lists import passes
from inlay.cli.main import commands, main
from inlay.runtime.native import MOST_THREADS

PROGRAM = "fn main<n>(x: Tensor[n, f32]) { softmax(add(x, neg(x))) }\n"
TABLE = commands()
BASES = {
    "run": "run t.inl",
    "compile": "compile t.inl -o t.inlay",
    "bench": "bench t.inl --rounds 1 --seconds 0",
    "tune": "tune t.inl --db t.db --minutes 0",
    "opt": "opt t.inl --passes to-anf,plan-places",
    "explain": "explain t.inl",
    "serve": "serve",
    "targets": "targets",
    "errors": "errors",
    "check": "check null",
    "new": "new accelerator thing --output folder",
    "memory": "memory list.csv --steps 100",
}
WORDS = (
    "",
    " ",
    "-1",
    "-",
    "--",
    "0",
    "nan",
    "1e999",
    "9" * 30,
    "9" * 5000,
    "1.5",
    "=",
    "a=b=c",
    "n=",
    "=3",
    "n=-1",
    "n=1.5",
    "n=" + "9" * 30,
    "n=" + "1" * 15,
    "\u00b2",
    "\x1b[31mred",
    "a\nb",
    "\u202e",
    "\udc80",
    "x" * 300,
    "x" * 5000,
    "%s",
    "{}",
    "[",
    "(",
    "*",
    "**=cpu",
    "@",
    "@f=cpu",
    "None",
    "true",
    "a,b",
    ",",
    "to-anf",
    "fuse-ops",
    "../..",
    "/",
    "/dev/null",
    "t.inl",
    "folder",
    "absent",
    "absent.toml",
    "absent.npz",
    "array.npy",
    "cut.npz",
    "objects.npz",
    "text.npz",
    "no-array.npz",
    "empty",
    "bytes",
    "bytes.toml",
    "bytes.json",
    "list.json",
    "deep.json",
    "empty.onnx",
    "bytes.onnx",
    "bytes.inl",
    "bytes.inlay",
    "empty.inlay",
    "bytes.py",
    "raises.py",
    "exits.py",
    "empty.py",
    "folder.onnx",
    "tcp://127.0.0.1:99999999",
    "tcp://",
    "ipc://",
    "tcp://999.999.999.999:1",
)


def flags() -> list[tuple[str, str]]:
    """Return commands with their flags, and `` for what has no flag."""
    found = []
    for name in TABLE:
        if name == "main":
            continue
        parser = argparse.ArgumentParser()
        TABLE[name].add_arguments(parser)
        for action in parser._actions:
            if action.nargs != 0 and action.dest != "help":
                found.append((name, (action.option_strings or [""])[-1]))
    return list(dict.fromkeys(found))


@pytest.fixture
def folder(tmp_path, monkeypatch, tmp_path_factory):
    """Go to a folder with files that are not what they are called, and let servers end at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("INLAY_CACHE", str(tmp_path_factory.getbasetemp() / "inlay-cache"))
    (tmp_path / "t.inl").write_text(PROGRAM)
    (tmp_path / "list.csv").write_text("id,lower,upper,size\na,0,1,4\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder.onnx").mkdir()
    array = np.ones(3, np.float32)
    np.save("array.npy", array)
    np.savez("whole.npz", y=array)
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:90])
    np.savez("objects.npz", x=np.array([{}], object))
    np.savez("text.npz", x=np.array(["a"]))
    with zipfile.ZipFile("no-array.npz", "w") as archive:
        archive.writestr("x", "text")
    for name in ("empty", "empty.onnx", "empty.inlay", "empty.py"):
        (tmp_path / name).write_bytes(b"")
    for name in ("bytes", "bytes.toml", "bytes.json", "bytes.onnx", "bytes.inl", "bytes.inlay", "bytes.py"):
        (tmp_path / name).write_bytes(bytes(range(256)))
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "raises.py").write_text("raise KeyError('no\\x1b[31m')")
    (tmp_path / "exits.py").write_text("import sys; sys.exit(70)")
    monkeypatch.setattr(
        serve, "threading", SimpleNamespace(Event=lambda: SimpleNamespace(wait=lambda _: True))
    )
    monkeypatch.setattr(
        serve,
        "signal",
        SimpleNamespace(signal=lambda *_: None, **{n: getattr(signal, n) for n in ("SIGINT", "SIGTERM")}),
    )
    return tmp_path


def check(words, capsys, allowed=(0, 1, 2, 3)):
    code = main(words)
    shown = capsys.readouterr()
    assert code in allowed, f"{words}: {code}\n{shown.err[-3000:]}"
    assert "Traceback" not in shown.err
    assert all(c.isprintable() or c == "\n" for c in shown.out + shown.err), words


def line_of(command, flag, value):
    """Return a command line; for what has no flag, with the value in its place."""
    base = BASES[command].split()
    if flag:
        return [*base, f"{flag}={value}" if flag.startswith("--") else f"{flag}{value}"]
    return [base[0], *base[2:], "--", value] if base[1:2] == ["t.inl"] else [base[0], "--", value]


SHARED = {flag for command, flag in flags() if command == "run"}
SAMPLE = [(c, f) for c, f in flags() if c == "run" or f not in {*SHARED, "--calibrate"}]


@pytest.mark.sample(15)
@pytest.mark.parametrize(("command", "flag"), SAMPLE)
def test_a_sample_of_bad_values(command, flag, folder, capsys):
    for value in random.Random(f"{command}{flag}").sample(WORDS, 3):
        check(line_of(command, flag, value), capsys)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "flag"), flags())
def test_all_bad_values(command, flag, folder, capsys):
    for value in WORDS:
        check(line_of(command, flag, value), capsys)


BAD = [
    "run t.inl --inputs array.npy",
    "run t.inl --inputs cut.npz",
    "run t.inl --inputs empty",
    "run t.inl --inputs folder",
    "run t.inl --inputs objects.npz",
    "run t.inl --inputs no-array.npz",
    "run t.inl --inputs whole.npz",
    "run t.inl --inputs text.npz",
    "run t.inl --seed -1",
    "run t.inl --seed 1.5",
    "run t.inl --seed " + "9" * 30,
    "run t.inl --dim n=" + "9" * 30,
    "run t.inl --dim n=1000000000000",
    "run t.inl --dim n=-1",
    "run t.inl --dim n=\u00b2",
    "run t.inl --dim m=3",
    "run t.inl --dim n",
    "run t.inl --threads 0",
    f"run t.inl --threads {MOST_THREADS + 1}",
    "run t.inl --threads 4294967297",
    "compile t.inl -o t.inlay --threads 0",
    "run t.inl --mode sideways",
    "run t.inl --schedule -1 --mode replay",
    "run t.inl --cache empty",
    "run t.inl --calibration list.json",
    "run t.inl --calibration deep.json",
    "run t.inl --board folder",
    "run t.inl --board nowhere",
    "run t.inl --extern folder",
    "run t.inl --extern exits.py",
    "run t.inl --extern bytes.py",
    "run t.inl --max-nodes many",
    "run folder",
    "run folder.onnx",
    "run empty.onnx",
    "run empty.inlay",
    "opt t.inl --passes fuse-ops",
    "opt t.inl --passes plan-memory",
    "opt t.inl --passes nothing",
    "opt t.inl --board nowhere",
    "bench",
    "bench t.inl --rounds 0",
    "bench t.inl --seconds nan",
    "bench t.inl --seconds -1",
    "bench t.inl --atol nan",
    "bench t.inl -o times.json",
    "bench --calibrate nowhere",
    "targets show",
    "targets show nowhere",
    "targets check nowhere",
    "serve --clients 0",
    "serve --clients 99999999999",
    "serve --listen tcp://127.0.0.1:99999999",
    "serve --options nothing",
    "serve --key folder",
    "errors nothing",
    "explain t.inl --board nowhere",
]


@pytest.mark.sample(30)
@pytest.mark.parametrize("line", BAD)
def test_what_is_bad_is_refused_in_words(line, folder, capsys):
    check(line.split(" "), capsys, allowed=(1, 2, 3))


@pytest.mark.parametrize("line", BAD[::5])
def test_refusals_are_objects_for_programs(line, folder, capsys):
    assert main([*line.split(" "), "--json"]) in (1, 2, 3)
    shown = json.loads(capsys.readouterr().out)
    assert shown["schema"] == 1 and all(found["message"] for found in shown["errors"])


@pytest.mark.sample(16)
@pytest.mark.parametrize("name", [*passes(), "costs", "anything"])
def test_each_pass_runs_or_says_what_it_requires(name, folder, capsys):
    for before in ("", "to-anf,", "to-anf,eta-expand,fuse-ops,"):
        check(["opt", "t.inl", "--passes", before + name], capsys, allowed=(0, 1))


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_a_user_without_home_or_name_is_served(home, folder, capsys, monkeypatch):
    def nobody(_):
        raise KeyError("getpwuid(): uid not found: 54321")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.delenv("INLAY_CACHE")
    monkeypatch.delenv("HOME")
    if home is not None:
        monkeypatch.setenv("HOME", home)
    before = sorted(folder.iterdir())
    check(["run", "t.inl"], capsys, allowed=(0,))
    assert sorted(folder.iterdir()) == before
