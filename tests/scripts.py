"""Scripts and programs of the repository, run as users run them."""

import subprocess

from conftest import PYTHON, ROOT, SCRIPTS_ENVIRONMENT


def script(path, *arguments, status=0, cwd=None, **environment):
    """Runs a script, or a Python program, that must end with this status; returns the finished process."""
    interpreter = [PYTHON] if path.endswith(".py") else []
    done = subprocess.run(
        [*interpreter, str(ROOT / path), *map(str, arguments)], env={**SCRIPTS_ENVIRONMENT, **environment},
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == status, (done.stdout + done.stderr)[-5000:]
    return done


def refused(path, *arguments, **more):
    """The one line of error of a script that must fail."""
    done = script(path, *arguments, status=1, **more)
    assert "Traceback" not in done.stdout + done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "error: " in line]
    return line
