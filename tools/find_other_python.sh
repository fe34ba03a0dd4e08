#!/bin/sh
# Prints the path of a CPython >= 3.11 whose minor version differs from that of $1; nothing if there is none.
own=$("$1" -c 'import sys; print(sys.version_info[1])')
for minor in 12 11 13; do
  [ "$minor" = "$own" ] && continue
  for candidate in "python3.$minor" "/usr/bin/python3.$minor" "${PYENV_ROOT:-/root/.pyenv}"/versions/3.$minor.*/bin/python3; do
    path=$(command -v "$candidate" 2>/dev/null) || continue
    if "$path" -c "import sys, venv, ensurepip; sys.exit(sys.version_info[:2] != (3, $minor))" 2>/dev/null; then
      echo "$path"
      exit 0
    fi
  done
done
