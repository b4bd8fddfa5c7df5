"""`inlay tune MODEL --db FILE`, and `--tuned FILE` of other commands."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from inlay.cli.main import main
from inlay.tune.database import Database

pytestmark = pytest.mark.llvm

PROGRAM = f"""
fn main<n>(x: Tensor[n, 16, f32]) {{
  softmax{{axis=1}}(matmul(x, f32[16, 48]({", ".join(str(i % 7 - 3) for i in range(16 * 48))})))
}}
entry main("x") -> ("y");
"""


@pytest.fixture(name="model")
def model_file(tmp_path: Path) -> str:
    (tmp_path / "p.inl").write_text(PROGRAM)
    return str(tmp_path / "p.inl")


def said(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_run_is_resumed_until_all_is_tried_and_others_use_it(model, tmp_path, capsys) -> None:
    file = str(tmp_path / "t.db")
    words = ["tune", model, "--db", file, "--threads", "1", "--dim", "n=16"]
    first = said([*words, "--minutes", "0"], capsys)
    assert (first["tried"], first["done"], first["kernels"]) == (0, 0, 2)
    whole = said(words, capsys)
    assert whole["done"] == 2
    assert whole["tried"] > 4
    assert [set(t) >= {"kernel", "ns", "kept", "dropped"} for t in whole["tuned"]] == [True, True]
    again = said(words, capsys)
    assert (again["tried"], again["done"]) == (0, 2)
    out = str(tmp_path / "p.inlay")
    compiled = said(["compile", model, "--tuned", file, "--threads", "1", "-o", out], capsys)
    explained = said(["explain", model, "--tuned", file, "--threads", "1", "--view", "loops"], capsys)
    assert compiled["report"]["tuned"] == explained["tuned"]
    assert explained["tuned"]["others"] == {}
    kept = sum(len(t["kept"]) for t in whole["tuned"])
    assert len(explained["tuned"]["kernels"]) + len(explained["tuned"]["products"]) == kept


def test_people_are_told_what_is_used_and_what_is_not(model, tmp_path, capsys) -> None:
    file = str(tmp_path / "t.db")
    Database(Path(file)).close()
    with sqlite3.connect(file) as other:
        other.execute("INSERT INTO place VALUES (1, 'Z80', 'none', 'old', 1)")
        other.execute(
            "INSERT INTO trial VALUES (1, 'kernel', 'k', '{\"a\":1}', 'm', 'measured', 1, 2, 0, 1, 1, '')"
        )
    other.close()
    assert main(["explain", model, "--tuned", file, "--view", "loops"]) == 0
    text = capsys.readouterr().out
    assert "measured choices: used for 0 kernels and 0 products" in text
    assert "not used: 1 choice, measured on 'Z80', this is '" in text
    assert main(["run", model, "--tuned", file, "--dim", "n=3"]) == 0
    assert "not used: 1 choice, measured on 'Z80'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "finding"),
    [
        (["tune", "MODEL", "--db", "DB", "--tuned", "DB"], "option.no-effect"),
        (["tune", "MODEL", "--db", "DB", "--batch"], "option.no-effect"),
        (["tune", "MODEL", "--db", "MODEL"], "save.over-input"),
        (["tune", "MODEL"], "option.usage"),
        (["tune", "MODEL", "--db", "DB", "--dim", "k=3"], "option.bad-value"),
        (["explain", "MODEL", "--tuned", "DB"], "option.no-effect"),
        (["run", "MODEL", "--tuned", "DB"], "tune.missing"),
        (["tune", "EMPTY", "--db", "DB"], "tune.nothing"),
        (["tune", "MODEL", "--db", "TEXT"], "tune.damaged"),
    ],
)
def test_what_means_nothing_is_refused(model, tmp_path, capsys, words: list[str], finding: str) -> None:
    (tmp_path / "e.inl").write_text('fn main(x: Tensor[3, f32]) { x }\nentry main("x") -> ("y");')
    (tmp_path / "t.txt").write_text("no database, but long enough to be looked at as one" * 40)
    names = {
        "MODEL": model,
        "DB": str(tmp_path / "t.db"),
        "EMPTY": str(tmp_path / "e.inl"),
        "TEXT": str(tmp_path / "t.txt"),
    }
    assert main([*(names.get(w, w) for w in words), "--json"]) in (1, 2)
    found = json.loads(capsys.readouterr().out)
    assert [e["id"] for e in found["errors"]] == [finding]
    assert (tmp_path / "p.inl").read_text() == PROGRAM


def test_who_interrupts_keeps_what_was_measured(model, tmp_path, capsys, monkeypatch) -> None:
    file = str(tmp_path / "t.db")
    record, written = Database.record, []

    def interrupted(self, *args) -> None:
        record(self, *args)
        written.append(args)
        raise KeyboardInterrupt

    monkeypatch.setattr(Database, "record", interrupted)
    found = said(["tune", model, "--db", file, "--dim", "n=16", "--threads", "1"], capsys, code=130)
    assert len(written) == 1
    assert found["tried"] == 0  # of kernels that were done with
    monkeypatch.undo()
    with sqlite3.connect(file) as made:
        (count,) = made.execute("SELECT count(*) FROM trial").fetchone()
    made.close()
    assert count == len(written[0][-1])
