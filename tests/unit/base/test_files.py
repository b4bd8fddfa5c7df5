"""Writing files: whole or not at all, and never over inputs."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inlay.base.diagnostics import CompileError
from inlay.base.files import check_output, write_text, writing


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_is_there_when_it_is_whole(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with writing(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("old", ["old", None])
def test_what_fails_leaves_the_old_file_and_nothing_else(tmp_path, failure, old):
    path = tmp_path / "a"
    if old:
        path.write_text(old)
    before = names(tmp_path)

    def fail(stream):
        stream.write(b"half")
        raise failure

    with pytest.raises(failure), writing(path) as stream:
        fail(stream)
    assert names(tmp_path) == before
    assert not old or path.read_text() == old


def test_a_full_disk_leaves_nothing_and_names_the_file(tmp_path):
    path = tmp_path / "large"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(OSError) as failure:
            write_text(path, "x" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert failure.value.filename == str(path)
    assert names(tmp_path) == []


def test_a_link_is_followed_and_the_mode_is_kept(tmp_path):
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "file"
    target.write_text("old")
    target.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(target)
    write_text(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    target.unlink()
    write_text(link, "again")
    assert target.read_text() == "again"


def test_a_new_file_has_the_mode_that_is_asked_for_under_the_mask(tmp_path):
    mask = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "")
        with writing(tmp_path / "b", mode=0o600):
            pass
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE((tmp_path / n).stat().st_mode) for n in "ab"]
    assert modes == [0o640, 0o600]


@pytest.mark.parametrize("how", ["name", "dots", "symbolic", "hard", "back"])
def test_an_input_is_not_written_over_by_any_name(tmp_path, how):
    model = tmp_path / "model"
    model.write_text("precious")
    other = tmp_path / "other"
    match how:
        case "name":
            other = model
        case "dots":
            other = tmp_path / "." / ".." / tmp_path.name / "model"
        case "symbolic":
            other.symlink_to(model)
        case "hard":
            other.hardlink_to(model)
        case _:
            other.symlink_to(model)
            model, other = other, model
    with pytest.raises(CompileError) as failure, writing(other, inputs=["absent", model]):
        pass
    assert failure.value.ids == ("save.over-input",)
    assert model.read_text() == "precious"


def test_what_cannot_be_written_is_said_before(tmp_path):
    for path, word in ((tmp_path, "folder"), (tmp_path / "no" / "a", "there is no folder")):
        with pytest.raises(OSError, match=word) as failure:
            check_output(path)
        assert failure.value.filename == str(path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError):
        check_output(tmp_path / "loop")
    check_output(Path("/dev/null"), ["/dev/null"])


def test_pipes_take_what_is_written(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_text(pipe, "through")
    reader.join()
    assert found == [b"through"]
    write_text(Path("/dev/null"), "away")
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("to_file", [False, True])
def test_the_streams_of_the_process_take_it_in_order(tmp_path, name, to_file):
    script = (
        "import sys; from pathlib import Path; from inlay.base.files import write_text\n"
        "print('before'); write_text(Path(sys.argv[1]), 'middle\\n'); print('after')"
    )
    words = [sys.executable, "-c", script, name]
    if to_file:
        with (tmp_path / "out").open("w") as out:
            subprocess.run(words, stdout=out, check=True)
        text = (tmp_path / "out").read_text()
    else:
        text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert text == "before\nmiddle\nafter\n"


def test_long_names_are_no_trouble(tmp_path):
    path = tmp_path / ("n" * 255)
    write_text(path, "x")
    assert path.read_text() == "x"
