"""A private network, in which other hosts' names lead to this process.

TensorFlow has no setting for the address of Google Cloud Storage. In user, mount and network namespaces of their own,
which Linux gives to anyone unless its administrator forbids it, commands see another /etc/hosts, another bundle of
certificates, and no network but the loopback.
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
    """Why there can be no private network here."""


class PrivateNetwork:
    """A process that keeps the namespaces in being.

    Args:
      hosts: names that lead to `listener`.
      certificates: what stands in for the certificates of the authorities, PEM.
      folder: where both files are put.

    Attributes:
      listener: a listening socket on the network's port 443.

    Raises:
      NotAllowedError: this machine does not allow it.
    """

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
            _, complaint = self._process.communicate()
            raise NotAllowedError(complaint.strip().splitlines()[-1])
        (descriptor,) = array.array('i', rights[0][2])
        self.listener = socket.socket(fileno=descriptor)

    def inside(self, command: Sequence[str]) -> List[str]:
        """The command that runs a command in the network, and in the current folder."""
        namespaces = ['--user', '--mount', '--net', f'--target={self._process.pid}']
        return ['nsenter', *namespaces, f'--wd={os.getcwd()}', *command]

    def close(self) -> None:
        """Lets go of the network."""
        self._control.close()
        self._process.communicate()


def _stay(control: socket.socket, hosts: str, certificates: str) -> None:
    """What runs in the namespaces: sets them up, hands the listening socket out, and waits."""
    for replacement, path in ((hosts, HOSTS_FILE), (certificates, CERTIFICATES_FILE)):
        subprocess.run(['mount', '--bind', replacement, path], check=True)
    with socket.socket() as probe:
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack('16sh14x', b'lo', _IFF_UP))
    with socket.socket() as listener:
        listener.bind(('127.0.0.1', HTTPS))
        listener.listen(128)
        rights = array.array('i', [listener.fileno()])
        control.sendmsg([b' '], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    # Until the other end is closed, by a process that ends if by nothing else.
    control.recv(1)


if __name__ == '__main__':
    _stay(socket.socket(fileno=int(sys.argv[1])), *sys.argv[2:])
