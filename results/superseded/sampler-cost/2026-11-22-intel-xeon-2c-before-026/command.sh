#!/usr/bin/env bash
# cost.sh BEFORE AFTER OUT ROUNDS SECONDS: both in turn, the first one alternating.
for round in $(seq $4); do
  order="before after"; [ $((round % 2)) = 0 ] && order="after before"
  for arm in $order; do
    program=$1; [ $arm = after ] && program=$2
    echo "{\"round\": $round, \"arm\": \"$arm\", \"load\": $(cut -d' ' -f1 /proc/loadavg), \"told\": $($program 100 $5)}" >> $3
  done
done
