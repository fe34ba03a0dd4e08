#!/usr/bin/env bash
# Runs a command as one stage of a make target: its output goes to a file, its progress to the terminal.
#   tools/run_stage.sh TITLE LOG COMMAND...
# Ninja's [done/all] is shown every ten seconds; a failure shows the end of the file.
set -u
title=$1 log=$2
shift 2
mkdir -p "$(dirname "$log")"
echo "== $title"
start=$SECONDS
"$@" >"$log" 2>&1 &
pid=$!
trap 'kill "$pid" 2>/dev/null' EXIT
trap 'exit 130' INT TERM
while kill -0 "$pid" 2>/dev/null; do
  sleep 1
  seconds=$((SECONDS - start))
  if ((seconds > 0 && seconds % 10 == 0)); then
    step=$(grep -oE '^ *\[[0-9]+/[0-9]+\]' "$log" | tail -n 1 | tr -d ' ')
    echo "   $seconds s ${step:+$step compiled}"
  fi
done
wait "$pid"
status=$?
if ((status != 0)); then
  tail -n 40 "$log"
  echo "== failed: $title (the whole output is in $log)"
  exit "$status"
fi
echo "   done in $((SECONDS - start)) s"
