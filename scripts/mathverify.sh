#!/usr/bin/env bash
# math-verify, which the tests of reward/mathgrade compare the grader of our own with.
#
#   scripts/mathverify.sh install       about a minute and 100 MB the first time, nothing afterwards; prints its python
#
# TRANCHE_ENGINES: where it is kept. The versions are pinned in scripts/mathverify/requirements.txt; changed pins are
# installed by the next call.
source "$(dirname "${BASH_SOURCE[0]}")/lib.bash"
own_folder mathverify

install() { install_pins mathverify 'import math_verify' --no-deps; }

case ${1:-} in
install)
  install
  echo "$home/bin/python"
  ;;
*)
  echo "usage: $me install" >&2
  exit 2
  ;;
esac
