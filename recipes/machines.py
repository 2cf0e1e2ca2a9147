"""The machines of a run watch each other: when one is lost, the others stop instead of waiting for it for ever.

Each keeps a connection to the first machine, whose name is MASTER_ADDR, at the port after MASTER_PORT. The kernels
probe idle connections, so that a machine without power or network is noticed within half a minute, and a busy one is
never taken for lost. Whoever ends says how first: a connection that closes without a word is a loss, too.
"""

import socket
import sys
import threading
import time

GREETING = "maelm_fairseq"
PROBES = {socket.TCP_KEEPIDLE: 5, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}  # seconds, seconds, number
FINE = "ended"
LONGEST = 300  # characters of a line
PATIENCE = 120  # seconds until a first machine that cannot be reached is reported


class Machines:
    """The connections of one machine to the others.

    Args:
        first (str): name or address of the first machine
        port (int): where it listens
        lost: called once, with a message, in another thread, when a machine is lost or its training has failed
    """

    def __init__(self, first, port, lost):
        self.first, self.port, self.lost = first, port, lost
        self.connections = []
        self.over = False  # nothing that happens now is news

    def watch(self):
        """Starts to watch, in threads that do not keep the program running."""
        self.thread = threading.Thread(target=self._accept if self._is_first() else self._connect, daemon=True)
        self.thread.start()

    def end(self, failure=""):
        """Tells the other machines how the training on this one has ended.

        Args:
            failure (str): why they cannot go on; empty if they have ended, too
        """
        self.over = True
        for connection in self.connections:
            try:
                connection.sendall(f"{failure or FINE}\n".encode())
            except OSError:
                pass  # it is lost

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
        report_at = time.monotonic() + PATIENCE
        while True:
            try:
                connection = socket.create_connection((self.first, self.port), timeout=PATIENCE)
                connection.settimeout(None)
                if self._follow(connection):
                    return
            except OSError:
                pass
            if time.monotonic() > report_at:
                report_at = float("inf")
                print(
                    f"warning: {self.first} does not answer at port {self.port}: "
                    "should a machine be lost, this one may wait for it without end",
                    file=sys.stderr,
                )
            time.sleep(1)

    def _follow(self, connection):
        """Follows another machine to its end; returns False if there is none at the other side."""
        if connection.getsockname() == connection.getpeername():  # TCP allows this while nobody listens at the port
            return False
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in PROBES.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        with connection, connection.makefile(encoding="utf-8", errors="replace") as lines:
            try:
                connection.sendall(f"{GREETING} {socket.gethostname()}\n".encode())
                greeting, _, name = lines.readline(LONGEST).rstrip("\n").partition(" ")
            except OSError:
                return False
            if greeting != GREETING:
                return False
            self.connections.append(connection)
            try:
                ending = lines.readline(LONGEST).rstrip("\n")
                reason = "it closed the connection"
            except OSError as error:
                ending, reason = "", error.strerror or str(error)
        if not ending:
            self._report(f"lost machine {name}: {reason}")
        elif ending != FINE:
            self._report(f"training on machine {name} {ending}")
        return True

    def _report(self, message):
        if not self.over:
            self.over = True
            self.lost(message)
