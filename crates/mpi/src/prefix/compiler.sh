#!/bin/sh
# @NAME@ of Viaduct: the compiler, with where MPI's headers and libraries are.
#   -show  -compile_info  -link_info   print the command instead of running it
#   @VARIABLE@             another compiler; -@OPTION@=NAME too
here=$(CDPATH= cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd) || exit 2
compiler=${@VARIABLE@:-@COMPILER@}
before="-I$here/include@FLAGS@"
after="-L$here/lib -Wl,-rpath,$here/lib -Wl,--enable-new-dtags@LIBRARIES@"
what=run
only=
link=yes
count=$#
while [ "$count" -gt 0 ]; do
    word=$1
    shift
    count=$((count - 1))
    case $word in
    -show) what=show ;;
    -compile_info | -compile-info) what=show link=no only=-c ;;
    -link_info | -link-info) what=show ;;
    -@OPTION@=*) compiler=${word#*=} ;;
    -c | -S | -E | -M | -MM) link=no; set -- "$@" "$word" ;;
    *) set -- "$@" "$word" ;;
    esac
done
[ "$link" = yes ] || after=
# The words before and after have no blanks of their own unless the folder's name has some.
if [ "$what" = show ]; then
    echo $compiler $before $only "$@" $after
    exit 0
fi
if [ $# -eq 0 ]; then
    echo "@NAME@: no input files; -show prints the command" >&2
    exit 1
fi
exec $compiler $before "$@" $after
