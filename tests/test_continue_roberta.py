"""The experiment that continues fairseq's own RoBERTa with MAE-LM, on a tiny model."""

import re
import subprocess

from conftest import ROOT, SCRIPTS_ENVIRONMENT


def test_from_roberta_to_ranks(prepared, tmp_path):
    dest = tmp_path / "with space"
    command = [ROOT / "experiments/continue_roberta.sh", "--data", prepared, "--dest", dest, "--tiny", "--updates", 24]
    printed = []
    for _ in range(2):  # the second time everything is done
        done = subprocess.run(
            list(map(str, command)), env=SCRIPTS_ENVIRONMENT, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        printed.append(done.stdout)
    logs = ["roberta", "mlm", "mae_lm", "shared", "ranks"]
    assert re.findall(r"^running: .*/(\w+)\.log$", printed[0], re.M) == logs
    assert "running" not in printed[1]
    table = [line for line in printed[0].splitlines() if line.startswith("|")]
    rows = {line.split("|")[1].strip(): line.split("|")[2:] for line in table[2:]}
    updates = [0, 1, 2, 3, 5, 6]  # the epoch ends after 4
    assert list(rows) == [f"{name}, {update}" for name in ["mlm", "mae_lm", "shared"] for update in updates]
    assert rows["mlm, 0"] == rows["mae_lm, 0"]  # both are the imported model
    assert rows["mlm, 0"][1] == rows["shared, 0"][1]  # as this is where there are no masks
    assert all((row[0].strip() == "-") == name.endswith(", 0") for name, row in rows.items())
    assert table == [line for line in printed[1].splitlines() if line.startswith("|")]
    assert "num_updates=24" in (dest / "roberta.log").read_text() or "24 updates" in (dest / "roberta.log").read_text()
