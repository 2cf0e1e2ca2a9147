"""The machines of a run watch each other: when one is lost, the others stop instead of waiting for it for ever.

Each keeps a connection to the first machine, whose name is MASTER_ADDR, at the port after MASTER_PORT. The kernels
probe idle connections, so that a machine without power or network is noticed within half a minute, and a busy one is
never taken for lost. Whoever ends well says so first: a connection that closes without a word is a loss, too.

torchrun's agents do not do this: tests/cluster/README.md has a run without this file.
"""

import contextlib
import socket
import threading
import time

GREETING, FINE = "maelm_fairseq", "ended"
PROBES = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}  # seconds, seconds, number
LONGEST = 300  # characters of a line


class Machines:
    """The connections of one machine to the others, in threads that do not keep the program running.

    Args:
        first (str): name or address of the first machine
        port (int): where it listens
        lost: called with a message, in another thread, when a machine is lost or its training has failed
    """

    def __init__(self, first, port, lost):
        self.first, self.port, self.lost = first, port, lost
        self.connections = []
        self.over = False  # nothing that happens now is news

    def watch(self):
        self.thread = threading.Thread(target=self._accept if self._is_first() else self._connect, daemon=True)
        self.thread.start()

    def end(self, fine):
        """Ends the connections; if the training here has ended as it should, the others are told."""
        self.over = True
        for connection in self.connections:
            with contextlib.suppress(OSError):
                if fine:
                    connection.sendall(f"{FINE}\n".encode())
                connection.shutdown(socket.SHUT_RDWR)

    def _is_first(self):
        """Whether this is the first machine: listens then, which only one of several trainings on it can."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.first, 0, type=socket.SOCK_STREAM)[0]
            with socket.socket(family) as trial:
                trial.bind(address)  # fails unless the address is one of this machine's
            both = socket.has_dualstack_ipv6()
            options = dict(family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)
            self.listening = socket.create_server(("", self.port), **options)
        except OSError:
            return False
        return True

    def _accept(self):
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self._follow, args=(connection,), daemon=True).start()

    def _connect(self):
        while True:
            with contextlib.suppress(OSError):
                connection = socket.create_connection((self.first, self.port), timeout=60)
                connection.settimeout(None)
                if self._follow(connection):
                    return
            time.sleep(1)

    def _follow(self, connection):
        """Follows another machine to its end; returns False if there is none at the other side."""
        if connection.getsockname() == connection.getpeername():  # TCP allows this while nobody listens at the port
            return False
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in PROBES.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        with connection, connection.makefile(encoding="utf-8", errors="replace") as lines:
            connection.sendall(f"{GREETING} {socket.gethostname()}\n".encode())
            greeting, _, name = lines.readline(LONGEST).rstrip("\n").partition(" ")
            if greeting != GREETING:
                return False
            self.connections.append(connection)
            ending, reason = "", "its training failed, or was killed"
            try:
                ending = lines.readline(LONGEST)
            except OSError as error:
                reason = error.strerror or str(error)
            if not ending and not self.over:
                self.over = True
                self.lost(f"lost machine {name}: {reason}")
        return True
