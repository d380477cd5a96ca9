#!/bin/sh
# Checks the model of the view change exhaustively, and that the checker finds each of its mutants wrong. Prints TAP.
#
# usage: run_model.sh MODEL
set -u
model=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
for tool in spin cc; do
    if ! command -v "$tool" >/dev/null; then
        echo "1..0 # SKIP $tool is not installed: install the Debian packages in contrib/packages.txt"
        exit 0
    fi
done
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
failed=0
test=0

# check NAME EXPECTED(errors: none or some) SPIN-OPTIONS...
check() {
    name=$1 expected=$2
    shift 2
    test=$((test + 1))
    rm -f pan* ./*.trail
    if ! spin -a "$@" "$model" >spin.out 2>&1 || ! cc -O2 -DSAFETY -DCOLLAPSE -DMEMLIM=4096 -DVECTORSZ=2048 -o pan pan.c >cc.out 2>&1; then
        echo "not ok $test - $name: does not compile"
        sed 's/^/# /' spin.out cc.out | head -n 20
        failed=1
        return
    fi
    ./pan -m200000 >pan.out 2>&1
    errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' pan.out | head -n 1)
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out | head -n 1)
    result="errors ${errors:-unknown}, states ${states:-unknown}"
    good=no
    # A search that was cut short proves nothing, but what it found it found.
    if [ "$expected" = some ] || ! grep -qE 'max search depth too small|out of memory|Search not completed' pan.out; then
        case $expected in
            none) [ "$errors" = 0 ] && good=yes ;;
            some) [ "${errors:-0}" != 0 ] && grep -q 'assertion violated' pan.out && good=yes ;;
        esac
    fi
    if [ $good = yes ]; then
        echo "ok $test - $name: $result"
    else
        echo "not ok $test - $name: $result"
        sed 's/^/# /' pan.out | head -n 30
        failed=1
    fi
}

echo "1..6"
check "4 nodes, 2 deaths, 1 false suspicion, 3 attempts: never two primary views" none
check "with 2 false suspicions, 2 attempts: never two primary views" none -DSUSPICIONS=2 -DATTEMPTS=2
check "without a quorum it is found wrong" some -DNO_QUORUM -DSUSPICIONS=4 -DATTEMPTS=2
check "with votes forgotten it is found wrong" some -DNO_MEMORY -DSUSPICIONS=4
check "with every proven death out of the base it is found wrong" some -DALL_CLEAN -DSUSPICIONS=4 -DATTEMPTS=2
check "with proofs taken without a doubt it is found wrong" some -DNO_DOUBT -DSUSPICIONS=2 -DATTEMPTS=2
exit $failed
