"""Runs commands in forks of a process that has imported torch and fairseq: starting one takes 0.1 s instead of 4.

    python forks.py SOCKET                              serves, until its standard input is closed
    python forks.py SOCKET PROGRAM [ARGUMENT...]        stands in for a command

PROGRAM is a Python script or `python` itself. A stand-in passes its arguments, environment, folder and standard streams
on, forwards the signals it gets, and ends as the fork did. A fork starts out like a new interpreter, but
`sys.executable` is the stand-in for `python`, so that programs started by a fork are forks, too.
"""

import contextlib
import json
import os
import signal
import socket
import sys

# Read when an interpreter or a library is loaded: a command that wants others gets a real process.
READ_AT_START = ("PYTHON", "LANG", "LC_", "LD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_", "MPL")
FORWARDED = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]


def read_at_start(environment):
    others = ("PYTHON", "PYTHONPATH")
    return {k: v for k, v in environment.items() if k.startswith(READ_AT_START) and k not in others}


def stand_in(path, program):
    real, arguments = program[0], program[1:]
    if not os.path.basename(real).startswith("python"):
        option, rest = "file", program
    elif arguments[:1] == ["-c"] or arguments[:1] == ["-m"] and arguments[1] not in ("pip", "venv"):
        option, rest = arguments[0], arguments[1:]
    else:
        option, rest = "file" if arguments and os.path.isfile(arguments[0]) else None, arguments
    with open(os.path.join(os.path.dirname(path), "environment.json")) as stream:
        if option is None or json.load(stream) != read_at_start(os.environ):
            os.execv(real, program)
    request = json.dumps([option, rest, os.getcwd(), dict(os.environ)]).encode()
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    socket.send_fds(server, [b"%10d" % len(request)], [0, 1, 2])
    server.sendall(request)

    def forward(number, _):
        with contextlib.suppress(OSError):  # the fork has ended
            server.send(bytes([number]))

    for number in FORWARDED:
        signal.signal(number, forward)
    status = int(server.recv(100) or 256)
    if os.WIFSIGNALED(status):
        if os.WTERMSIG(status) != signal.SIGKILL:
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def import_packages():
    """Imports what commands import, but nothing of `fairseq_cli`: the plugin looks for it to know a command.

    And composes a configuration, as fairseq's commands do first, which takes a third of the time of a short one: what
    the parser of Hydra's overrides has learned of its grammar is then known.
    """
    import gc
    import logging
    import warnings

    logging.disable(logging.WARNING)
    import multiprocessing.spawn  # noqa: F401  it remembers the real sys.executable

    import fairseq.trainer  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import regex  # noqa: F401
    import sentencepiece  # noqa: F401
    import sklearn.svm  # noqa: F401
    import tokenizers  # noqa: F401
    import torch._dynamo  # noqa: F401  the first optimizer imports it
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    # fairseq's iterators are part of reference cycles, and a data loader freed by the garbage collector waits this
    # long for each of its workers before it stops them. The default is 5 s.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = ["data", "--arch", "roberta", "--task", "masked_lm", "--criterion", "masked_lm"]
        args = options.parse_args_and_arch(options.get_training_parser(), words)
        convert_namespace_to_omegaconf(args)
    logging.disable(logging.NOTSET)
    logging.root.handlers.clear()  # fairseq sets them
    logging.root.setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()


def serve(path):
    """Forks a process for each connection, which forks the program and stays with it."""
    import select

    import_packages()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".new")
        listener.listen(100)
        os.rename(path + ".new", path)
        while True:
            ready, _, _ = select.select([0, listener], [], [])
            if 0 in ready:
                os.killpg(0, signal.SIGKILL)  # with all forks
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                break
            connection.close()
    header, streams, _, _ = socket.recv_fds(connection, 10, 3)
    with connection.makefile("rb") as stream:
        option, program, folder, environment = json.loads(stream.read(int(header)))
    pid = os.fork()
    if pid:
        attend(pid, connection)
    connection.close()
    os.setpgid(0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has the tests ignore it
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Python has looked at once whether the streams are files, and these may not be.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.executable = os.path.join(os.path.dirname(path), "python")
    try:
        code = become(option, program)
    except SystemExit as request:
        code = request.code
    except Exception:
        sys.excepthook(*sys.exc_info())
        code = 1
    end(code)


def attend(pid, connection):
    """Forwards signals to a fork, kills it with its client, and tells how it ended."""
    import threading

    def forward():
        with contextlib.suppress(ProcessLookupError):  # the fork has just ended
            while number := connection.recv(1):
                os.kill(pid, number[0])
            os.killpg(pid, signal.SIGKILL)  # the client was killed

    threading.Thread(target=forward, daemon=True).start()
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):
        connection.send(b"%d" % status)
    os._exit(0)


def become(option, program):
    """Runs a program in this process, as a new interpreter would."""
    import atexit
    import gc
    import runpy

    import numpy
    import torch

    numpy.random.seed()
    if torch.initial_seed() != 67280421310721:  # torch's fixed seed; newer versions draw one
        torch.seed()
    if "triton" in sys.modules:
        atexit.register(gc.unfreeze)  # of what is never freed, triton prints at the end that it has leaked
    name = program[0]
    first = {"file": os.path.dirname(os.path.realpath(name)), "-c": "", "-m": os.getcwd()}[option]
    path = os.environ.get("PYTHONPATH")
    sys.path[:] = [first, *(map(os.path.abspath, path.split(os.pathsep)) if path else []), *sys.path[1:]]
    sys.argv[:] = program if option == "file" else [option, *program[1:]]
    with contextlib.suppress(ImportError):
        import sitecustomize  # noqa: F401  a test's, in a folder of PYTHONPATH
    if option == "-m":
        runpy._run_module_as_main(name)
    elif option == "-c":
        exec(compile(name, "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        if os.path.basename(name) == "pretrain.py":  # where fairseq is loaded, base/ already imports the plugin
            import fairseq_cli.train  # noqa: F401
        runpy.run_path(name, run_name="__main__")


def end(code):
    """Ends as Python does, but for taking all modules apart, which copies the memory that is the server's, too."""
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    if not isinstance(code, (int, type(None))):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError, ValueError):  # closed, by whoever reads it or by the program
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        stand_in(sys.argv[1], sys.argv[2:])
