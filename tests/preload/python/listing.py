"""An FTP service of one page for one connection on standard input and output, as inetd starts it.

LIST is answered by a child process: `ls` writes straight into the data connection, as daemons of old had it.
"""

import os
import socket
import subprocess
import sys

folder = sys.argv[1]
control = socket.socket(fileno=os.dup(0))
lines = control.makefile("rb")
passive = None


def say(text):
    control.sendall(text.encode() + b"\r\n")


say("220 ready")
for line in lines:
    verb, _, word = line.decode().strip().partition(" ")
    verb = verb.upper()
    if verb in ("USER", "PASS"):
        say("331 password" if verb == "USER" else "230 welcome")
    elif verb in ("TYPE", "NOOP", "CWD"):
        say("200 good")
    elif verb == "PWD":
        say('257 "/"')
    elif verb in ("PASV", "EPSV"):
        passive = socket.create_server(("127.0.0.1", 0))
        port = passive.getsockname()[1]
        if verb == "EPSV":
            say(f"229 Extended (|||{port}|)")
        else:
            say(f"227 Passive (127,0,0,1,{port >> 8},{port & 255})")
    elif verb in ("LIST", "RETR"):
        data, _ = passive.accept()
        passive.close()
        say("150 here it comes")
        # A few lines of our own first, so that the child gets a connection that is in use.
        for number in range(20):
            data.sendall(b"%06d\r\n" % number)
        command = ["ls", "-l", folder] if verb == "LIST" else ["cat", os.path.join(folder, word)]
        subprocess.run(command, stdout=data.fileno(), check=True)
        data.close()
        say("226 done")
    elif verb == "QUIT":
        say("221 bye")
        break
    else:
        say("502 not here")
