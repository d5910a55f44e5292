#!/bin/sh
# run.sh PROGRAM COMMIT, as root, in an empty directory with 6 GiB of room
B=$1; rm -rf million
echo "## $(date -u +%F) $(uname -r), commit $2"
echo '$ ioloom fileset create count=1000000,size=4KiB,layout=nested,seed=5 million'
$B fileset create 'count=1000000,size=4KiB,layout=nested,seed=5' million 2>/dev/null | tail -4
mkdir million/large; for i in 1 2 3 4 5 6 7 8; do head -c 67108864 /dev/urandom > million/large/f$i; done; sync
for m in 256MiB 96MiB; do
echo 3 > /proc/sys/vm/drop_caches
echo "\$ ioloom each million --memory $m --json (cold)"
/usr/bin/time -f "%e s wall, %U s user, %S s kernel, peak resident %M KiB" $B each million --memory $m --json 2>&1 | grep -E '"(plan|files|bytes|digest|errors|budget_peak_bytes|memory_peak_bytes|elapsed_ns|files_per_s)"|wall'
done
echo '$ seq 1000000 | ioloom each - --method null --schedule window:l=32,p=1 --json'
for i in 1 2 3 4 5; do seq 1000000 | $B each - --method null --schedule window:l=32,p=1 --json | grep -E '"(elapsed_ns|cpu_user_ns|cpu_kernel_ns|files|memory_peak_bytes)"' | tr -d '\n'; echo; done
rm -rf million
