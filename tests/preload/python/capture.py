"""A peer that is not under Viaduct: echoes one connection, and prints each packet with data, or that begins or ends the
connection, as it came over the loopback device. Numbers are counted from the first, and the values of time stamps left out; the
rest, options included, is what the client's kernel put there. Needs root.
"""

import socket
import struct
import threading

IP, HOST = 0x0800, 0
FIN, SYN, RST = 1, 2, 4


def echo(listener):
    stream, _ = listener.accept()
    while block := stream.recv(4096):
        stream.sendall(block)
    stream.close()


def options(block):
    kept = []
    while block and block[0] != 0:
        size = 1 if block[0] == 1 else block[1]
        kept.append(block[:1].hex() if block[0] == 8 else block[:size].hex())
        block = block[size:]
    return ",".join(kept)


wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IP))
wire.bind(("lo", IP))
wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
wire.settimeout(60)
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
print(port, flush=True)
peer = threading.Thread(target=echo, args=[listener])
peer.start()
first = {}
while True:
    packet, (_, _, kind, *_) = wire.recvfrom(1 << 16)
    packet = packet[14:]
    tcp = packet[(packet[0] & 15) * 4 : struct.unpack("!H", packet[2:4])[0]]
    if kind != HOST or packet[9] != socket.IPPROTO_TCP:
        continue
    source, to, number, heard, size, flags = struct.unpack("!HHIIBB", tcp[:14])
    if flags & SYN and port in (source, to):
        first[source == port] = number
    if to != port:
        continue
    size = (size >> 4) * 4
    if tcp[size:] or flags & (SYN | FIN | RST):
        heard = (heard - first[True]) % 2**32 if True in first else 0
        place = (number - first[False]) % 2**32
        print(f"{flags:02x} {place} {heard} {options(tcp[20:size])} {tcp[size:].hex()}")
    if flags & (FIN | RST):
        break
peer.join()
