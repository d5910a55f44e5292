#!/usr/bin/env bash
# memory.sh PROGRAM OUT: peak memory (largest resident size) of copies, by /usr/bin/time, in turn.
set -u
program=$1; out=$2; here=./scratch; peers=.
mkdir -p $here
one() { # what arm command...
  what=$1; arm=$2; shift 2
  rm -rf $here/to
  /usr/bin/time -o $here/time -f '%M %e %U %S %x' "$@" > /dev/null 2> $here/error
  read -r kib wall user system code < <(tail -1 $here/time)
  echo "{\"what\": \"$what\", \"arm\": \"$arm\", \"round\": $round, \"peak_kib\": $kib, \"elapsed_s\": $wall, \"user_s\": $user, \"system_s\": $system, \"exit\": $code, \"told\": \"$(head -c 200 $here/error | tr '\n"' "  ")\"}" >> $out
}
arms() { # what from
  what=$1; from=$2
  one "$what" "ioloom, as planned" $program cp -rT $from $here/to
  for mode in reflink range buffered uncached direct; do
    one "$what" "ioloom --mode $mode" $program cp -rT --mode $mode $from $here/to
  done
  one "$what" "ioloom --verify cache" $program cp -rT --verify cache $from $here/to
  one "$what" "ioloom -a --resume" $program cp -aT --resume $from $here/to
  one "$what" "cp" cp -rT $from $here/to
  one "$what" "xcp" $peers/xcp -r -T $from $here/to
  one "$what" "cpz" $peers/cpz $from $here/to
  one "$what" "rsync" rsync -rW $from$3 $here/to
}
if [ "${3:-all}" = all ]; then head -c 1073741824 /dev/urandom > $here/big
for round in 1 2 3; do arms "one file of 1 GiB" $here/big ""; done; fi
rm -rf $here/big $here/to
python3 -c "
import os, random
os.makedirs('$here/set/files'); bytes = random.Random(1)
for i in range(100000):
    with open('$here/set/files/%08d' % i, 'wb') as file: file.write(bytes.randbytes(4096))"
ls $here/set | head -3
for round in 1 2; do arms "100 000 files of 4 KiB" $here/set/files /; done
rm -rf $here
