"""Runs commands in forks of one process that has imported torch and fairseq: starting one takes 0.1 s instead of 4.

    python fork_server.py DESCRIPTOR

listens on the Unix socket that it inherits as DESCRIPTOR until its standard input is closed. `fork_client.py` stands in
for a command: it sends its arguments, environment, working directory and standard streams, forwards the signals it
gets, and exits as the fork did.

A fork starts out like a new interpreter: arguments, `__main__`, `sys.path`, environment, streams, logging and random
numbers are its own. It differs in that imports print nothing, and `sys.executable` is the stand-in for `python`, so
programs that a fork starts are forks, too. The plugin is not imported here: each fork imports it as a command would.
"""

import array
import atexit
import gc
import io
import json
import logging
import os
import runpy
import select
import signal
import socket
import struct
import sys
import threading
import types

PREFIX = struct.Struct("!I")


def import_packages():
    """Imports what commands import, but nothing of `fairseq_cli`: the plugin looks for it to know a command."""
    logging.disable(logging.WARNING)
    import multiprocessing.spawn  # noqa: F401  it remembers the real sys.executable

    import fairseq  # noqa: F401
    import matplotlib.figure  # noqa: F401
    import sentencepiece  # noqa: F401
    import torch._dynamo  # noqa: F401  the first optimizer imports it

    # fairseq's iterators are part of reference cycles, and a data loader freed by the garbage collector waits this
    # long for each of its workers before it stops them. The default is 5 s.
    torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.1

    logging.disable(logging.NOTSET)
    logging.root.handlers.clear()  # fairseq sets them
    logging.root.setLevel(logging.WARNING)
    loaded = [name for name in sys.modules if name.partition(".")[0] in ("fairseq_cli", "maelm_fairseq")]
    threads = os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ["one"]
    assert not loaded and len(threads) == 1, (loaded, threads)  # a fork has none of its parent's threads
    gc.collect()
    gc.freeze()


def receive(connection):
    """Reads a request: its JSON, and the three file descriptors that come with it."""
    descriptors = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(PREFIX.size, socket.CMSG_SPACE(3 * descriptors.itemsize))
    for _, _, sent in ancillary:
        descriptors.frombytes(sent)
    (length,) = PREFIX.unpack(data)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(length)), list(descriptors)


def serve(listener):
    """Forks for each request; in a fork, returns the request. Returns None when standard input is closed."""
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    connections = {}  # of each running fork, by its process id
    while True:
        ready, _, _ = select.select([0, listener, wake, *filter(None, connections.values())], [], [])
        for pid, connection in connections.items():
            if connection in ready:
                received = connection.recv(1)
                if received:
                    os.kill(pid, received[0])
                else:  # the client was killed
                    connections[pid] = None
                    kill(pid)
        if wake in ready:
            os.read(wake, 1000)
            for pid in list(connections):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    connection = connections.pop(pid)
                    if connection:
                        answer(connection, status)
        if 0 in ready:
            for pid in connections:
                kill(pid)
            return None
        if listener in ready:
            connection, _ = listener.accept()
            try:
                request, descriptors = receive(connection)
            except (OSError, ValueError, struct.error):  # the client was killed
                connection.close()
                continue
            pid = os.fork()
            if pid == 0:
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for opened in [listener, connection, *filter(None, connections.values())]:
                    opened.close()
                os.close(wake), os.close(woken)
                for number, descriptor in enumerate(descriptors):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                return request
            for descriptor in descriptors:
                os.close(descriptor)
            connections[pid] = connection


def kill(pid):
    """Kills a fork and what it started."""
    os.kill(pid, signal.SIGKILL)
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # no group yet, or no longer
        pass


def answer(connection, status):
    try:
        connection.sendall(b"%d" % status)
    except BrokenPipeError:
        pass
    connection.close()


def become(request, base_path):
    """Runs a request's program in this process, as a new interpreter would."""
    import numpy
    import torch

    numpy.random.seed()
    if torch.initial_seed() != 67280421310721:  # torch's fixed seed; newer versions draw one
        torch.seed()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.executable = request["python"]
    text = dict(encoding=sys.stdout.encoding, closefd=False)
    sys.stdin = sys.__stdin__ = open(0, errors=sys.stdin.errors, **text)
    unbuffered = sys.stdout.write_through  # PYTHONUNBUFFERED
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(
        open(1, "wb", 0 if unbuffered else -1, closefd=False),
        encoding=sys.stdout.encoding,
        errors=sys.stdout.errors,
        write_through=unbuffered,
        line_buffering=os.isatty(1),
    )
    sys.stderr = sys.__stderr__ = open(2, "w", buffering=1, errors="backslashreplace", **text)

    option, program, *arguments = request["program"]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    first = {"file": os.path.dirname(os.path.realpath(program)), "-c": "", "-m": os.getcwd()}[option]
    sys.path[:] = [first, *python_path(), *base_path]
    sys.argv[:] = [program if option == "file" else option, *arguments]
    if option == "-m":
        runpy._run_module_as_main(program)
    elif option == "-c":
        exec(compile(program, "<string>", "exec"), main.__dict__)
    else:
        main.__file__ = os.path.abspath(program)
        with io.open_code(program) as source:
            code = compile(source.read(), main.__file__, "exec")
        exec(code, main.__dict__)


def end(error):
    """Ends this process as an interpreter does after a program that raised `error` (or None), but frees no memory."""
    status = 0
    if isinstance(error, SystemExit):
        status = error.code
        if status is not None and not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    elif error:
        status = 1
        traceback = error.__traceback__
        while traceback and traceback.tb_frame.f_code.co_filename == __file__:
            traceback = traceback.tb_next
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
    threading._shutdown()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except OSError:
        status = 120
    if isinstance(error, KeyboardInterrupt):
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit((status or 0) & 0xFF)


def python_path():
    path = os.environ.get("PYTHONPATH")
    return [os.path.abspath(folder) for folder in path.split(os.pathsep)] if path else []


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        path_without = [folder for folder in sys.path[1:] if folder not in python_path()]
        sys.path[:] = [*python_path(), *path_without]
        import_packages()
        requested = serve(listening)
    if requested:
        raised = None
        try:
            become(requested, path_without)
        except BaseException as exception:
            raised = exception
        end(raised)
