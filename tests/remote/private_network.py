"""A private network in which host names of Google resolve to a server in this process.

TensorFlow has no setting for the address of Google Cloud Storage. Therefore commands run in separate user, mount and
network namespaces, which need no privileges unless the administrator has disabled them. In these namespaces, /etc/hosts
and the certificate bundle are replaced, and the only network interface is loopback.
"""

import array
import fcntl
import os
import pathlib
import socket
import struct
import subprocess
import sys
from typing import List, Sequence

HOSTS_FILE = '/etc/hosts'
CERTIFICATES_FILE = '/etc/ssl/certs/ca-certificates.crt'
HTTPS = 443

_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


class NotAllowedError(Exception):
    """This machine does not allow private networks, for the reason in the message."""


class PrivateNetwork:
    """A process that keeps the namespaces alive, in which `hosts` resolve to `listener`, a socket on port 443."""

    def __init__(self, hosts: Sequence[str], certificates: bytes, folder: pathlib.Path):
        (folder / 'hosts').write_text(''.join(f'127.0.0.1 {host}\n' for host in ('localhost', *hosts)))
        (folder / 'certificates').write_bytes(certificates)
        self._control, inside = socket.socketpair()
        enter = ['unshare', '--user', '--map-root-user', '--mount', '--net']
        stay = [sys.executable, __file__, str(inside.fileno()), str(folder / 'hosts'), str(folder / 'certificates')]
        try:
            with inside:
                self._process = subprocess.Popen(
                    [*enter, *stay], pass_fds=[inside.fileno()], stderr=subprocess.PIPE, text=True
                )
        except OSError as error:
            raise NotAllowedError(str(error))
        _, rights, _, _ = self._control.recvmsg(1, socket.CMSG_SPACE(struct.calcsize('i')))
        if not rights:
            _, errors = self._process.communicate()
            raise NotAllowedError(errors.strip().splitlines()[-1])
        (descriptor,) = array.array('i', rights[0][2])
        self.listener = socket.socket(fileno=descriptor)

    def inside(self, command: Sequence[str]) -> List[str]:
        """Returns the command line that runs a command in the network and in the current folder."""
        namespaces = ['--user', '--mount', '--net', f'--target={self._process.pid}']
        return ['nsenter', *namespaces, f'--wd={os.getcwd()}', *command]

    def close(self) -> None:
        """Ends the process, and thereby the network."""
        self._control.close()
        self._process.communicate()


def _stay(control: socket.socket, hosts: str, certificates: str) -> None:
    """Runs in the namespaces: sets them up, sends the listening socket to the parent process, and waits."""
    for replacement, path in ((hosts, HOSTS_FILE), (certificates, CERTIFICATES_FILE)):
        subprocess.run(['mount', '--bind', replacement, path], check=True)
    with socket.socket() as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack('16sh14x', b'lo', _IFF_UP))
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', HTTPS))
        listener.listen(128)
        rights = array.array('i', [listener.fileno()])
        control.sendmsg([b' '], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    # Returns when the parent process closes its end of the socket, or exits.
    control.recv(1)


if __name__ == '__main__':
    _stay(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
