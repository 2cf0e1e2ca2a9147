"""Runs commands in forks of a process that has imported torch and fairseq.

Starting a command this way takes 0.1 s instead of 4.

    python forks.py SOCKET                              serves, until its standard input is closed
    python forks.py SOCKET PROGRAM [ARGUMENT...]        stands in for a command

PROGRAM is a Python script or `python` itself. A stand-in passes on its arguments, environment,
folder and standard streams, forwards the signals it gets, and ends as the fork did. A fork starts
out like a new interpreter, but `sys.executable` is the stand-in for `python`, so that programs
started by a fork are forks, too.
"""

import contextlib
import json
import os
import signal
import socket
import sys

# Prefixes of variables that are read when an interpreter or a library is loaded. A command whose
# values differ from the server's gets a real process.
READ_BY_PYTHON = ("PYTHON", "LANG", "LC_", "LD_")
READ_BY_LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_", "MPL")
READ_AT_START = READ_BY_PYTHON + READ_BY_LIBRARIES
FORWARDED = [
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
]
NEEDS_A_PROCESS = ("pip", "venv")  # modules that cannot run in a fork


def read_at_start(environment):
    """The variables of an environment that a fork cannot change."""
    others = ("PYTHON", "PYTHONPATH")  # read by scripts, and set up again in a fork
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in others
    }


def stand_in(path, program):
    """Runs the program in a fork and ends as the fork did; runs it itself if no fork can."""
    option, words = request_of(program)
    with open(os.path.join(os.path.dirname(path), "environment.json")) as stream:
        if option is None or json.load(stream) != read_at_start(os.environ):
            os.execv(program[0], program)
    request = json.dumps([option, words, os.getcwd(), dict(os.environ)]).encode()
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


def request_of(program):
    """How a fork runs a program ("file", "-c" or "-m"; None if it cannot), and the words to run."""
    arguments = program[1:]
    if not os.path.basename(program[0]).startswith("python"):
        return "file", program
    if arguments[:1] == ["-c"]:
        return "-c", arguments[1:]
    if arguments[:1] == ["-m"] and arguments[1] not in NEEDS_A_PROCESS:
        return "-m", arguments[1:]
    if arguments and os.path.isfile(arguments[0]):
        return "file", arguments
    return None, arguments


def import_packages():
    """Imports what commands import, but nothing of `fairseq_cli`.

    The plugin takes `fairseq_cli` among the imported modules as the sign of a command.

    Also composes a configuration, as fairseq's commands do first. That takes a third of the time
    of a short command, mostly because the parser of Hydra's overrides learns its grammar; forks
    inherit what it has learned.
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

    # fairseq's iterators are part of reference cycles, and a data loader freed by the garbage
    # collector waits this long for each of its workers before it stops them. The default is 5 s.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        words = ["data", "--arch", "roberta", "--task", "masked_lm", "--criterion", "masked_lm"]
        args = options.parse_args_and_arch(options.get_training_parser(), words)
        convert_namespace_to_omegaconf(args)
    logging.disable(logging.NOTSET)
    logging.root.handlers.clear()  # fairseq has set them
    logging.root.setLevel(logging.WARNING)
    gc.collect()
    gc.freeze()


def serve(path):
    """Forks a process for each connection, which forks the program and attends to it."""
    try:
        import_packages()
    except BaseException:
        import shutil  # not above: stand-ins start faster without it

        shutil.rmtree(os.path.dirname(path))  # so that nobody waits for the socket
        raise
    connection = accept_in_forks(path)
    header, streams, _, _ = socket.recv_fds(connection, 10, 3)
    with connection.makefile("rb") as stream:
        option, program, folder, environment = json.loads(stream.read(int(header)))
    pid = os.fork()
    if pid:
        attend(pid, connection)
    connection.close()
    os.setpgid(0, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, the tests ignore it
    take_over(streams)
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


def accept_in_forks(path):
    """Listens for ever; returns only in forks, each of which has a connection to a stand-in."""
    import select

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path + ".new")
        listener.listen(100)
        os.rename(path + ".new", path)
        while True:
            ready, _, _ = select.select([0, listener], [], [])
            if 0 in ready:
                os.killpg(0, signal.SIGKILL)  # this server and all forks
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                return connection
            connection.close()


def take_over(streams):
    """Makes the three streams of a stand-in this process's own."""
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    # Python chose how to buffer its streams by what they were at its start; these may be others.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = open(
        2, "w", buffering=1, errors="backslashreplace", closefd=False
    )


def attend(pid, connection):
    """Forwards signals to a fork, kills it if its stand-in dies, and reports how it ended."""
    import threading

    def forward():
        with contextlib.suppress(ProcessLookupError):  # the fork has just ended
            while number := connection.recv(1):
                os.kill(pid, number[0])
            os.killpg(pid, signal.SIGKILL)  # the stand-in was killed

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
        # Otherwise triton reports at the end that objects which were never freed have leaked.
        atexit.register(gc.unfreeze)
    name = program[0]
    first = {"file": os.path.dirname(os.path.realpath(name)), "-c": "", "-m": os.getcwd()}[option]
    path = os.environ.get("PYTHONPATH")
    from_environment = map(os.path.abspath, path.split(os.pathsep)) if path else []
    sys.path[:] = [first, *from_environment, *sys.path[1:]]
    sys.argv[:] = program if option == "file" else [option, *program[1:]]
    sys.modules.pop("sitecustomize", None)  # of the system, which the server has imported
    with contextlib.suppress(ImportError):
        import sitecustomize  # noqa: F401  that of a test, in a folder of PYTHONPATH
    if option == "-m":
        runpy._run_module_as_main(name)
    elif option == "-c":
        exec(compile(name, "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        if os.path.basename(name) == "pretrain.py":
            # As fairseq is loaded, base/ already imports the plugin, which must see a command.
            import fairseq_cli.train  # noqa: F401
        runpy.run_path(name, run_name="__main__")


def end(code):
    """Ends as Python does, but leaves the modules as they are.

    Taking them apart would copy the memory that is shared with the server.
    """
    import atexit
    import threading

    threading._shutdown()
    atexit._run_exitfuncs()
    if not isinstance(code, (int, type(None))):
        print(code, file=sys.stderr)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        # The reader or the program may have closed it.
        with contextlib.suppress(OSError, AttributeError, ValueError):
            stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve(sys.argv[1])
    else:
        stand_in(sys.argv[1], sys.argv[2:])
