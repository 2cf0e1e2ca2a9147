"""Stands in for a command: `fork_server.py` runs it in a fork. Usage: fork_client.py FOLDER PROGRAM [ARGUMENT...]

PROGRAM is a Python script of the environment, or its `python`. What a fork cannot do is left to the real program.
"""

import array
import contextlib
import json
import os
import signal
import socket
import struct
import sys

# Read when an interpreter or a library is loaded, so a fork has the server's.
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_", "MPL")
READ_BY_A_FORK = ("PYTHON", "PYTHONPATH")
FORWARDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]


def read_at_start(environment):
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in READ_BY_A_FORK
    }


def forkable(program, arguments):
    """What a fork must run: ["file", FILE, ...], ["-m", MODULE, ...] or ["-c", CODE, ...]; None if it cannot."""
    if not os.path.basename(program).startswith("python"):
        return ["file", program, *arguments]
    if not arguments or arguments[0] == "-m" and arguments[1:2] in (["pip"], ["venv"]):
        return None
    if arguments[0] in ("-c", "-m") and len(arguments) > 1:
        return arguments
    return ["file", *arguments] if os.path.isfile(arguments[0]) else None


def request(folder, program):
    """Asks the server to run a program; returns the connection."""
    content = json.dumps(
        {
            "program": program,
            "cwd": os.getcwd(),
            "environment": dict(os.environ),
            "python": os.path.join(folder, "python"),
        }
    ).encode()
    server = socket.socket(socket.AF_UNIX)
    server.connect(os.path.join(folder, "socket"))
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    server.sendmsg([struct.pack("!I", len(content))], streams)
    server.sendall(content)
    return server


def main():
    folder, real, *arguments = sys.argv[1:]
    program = forkable(real, arguments)
    with open(os.path.join(folder, "environment.json")) as stream:
        same = json.load(stream) == read_at_start(os.environ)
    if not program or not same:
        os.execv(real, [real, *arguments])

    server = request(folder, program)

    def forward(number, _):
        with contextlib.suppress(OSError):  # the fork has ended
            server.send(bytes([number]))

    for number in FORWARDED:
        signal.signal(number, forward)
    answer = server.recv(100)
    if not answer:
        sys.exit(f"{os.path.basename(real)}: the fork server has ended")
    status = int(answer)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main()
