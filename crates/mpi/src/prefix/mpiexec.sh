#!/bin/sh
# @NAME@ of Viaduct: `viaduct launch`, whose ranks find this folder's libraries first.
here=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd) || exit 2
for viaduct in "$here/../viaduct" "$here/../../../bin/viaduct"; do
    if [ -x "$viaduct" ]; then
        LD_LIBRARY_PATH=$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        # mpi4py prefers an MPI that lies in its own environment to the loader path.
        MPI4PY_LIBMPI=${MPI4PY_LIBMPI:-$here/lib/libmpi.so.12}
        export LD_LIBRARY_PATH MPI4PY_LIBMPI
        exec "$viaduct" launch -x LD_LIBRARY_PATH,MPI4PY_LIBMPI "$@"
    fi
done
echo "@NAME@: no program viaduct beside $here" >&2
exit 2
