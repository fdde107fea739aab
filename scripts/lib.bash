# What the scripts that install other programs have in common; they source it. It holds no knowledge of any one program.
#
# Everything they install lives outside the checkout, one folder a program, and survives between checkouts:
#   ${TRANCHE_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/tranche-engines}/NAME
# A folder that is complete holds a file "ready". Servers leave PORT.log and PORT.pid beside it.
set -euo pipefail

me=${0##*/}
engines=${TRANCHE_ENGINES:-${XDG_CACHE_HOME:-$HOME/.cache}/tranche-engines}

say() { echo "$me: $*" >&2; }
die() {
  say "$*"
  exit 1
}

need() { # need COMMAND HOW-TO-GET-IT
  command -v "$1" >/dev/null || die "$1 is not on PATH; $2"
}

# own_folder NAME sets $home, the program's folder.
own_folder() {
  home=$engines/$1
  mkdir -p "$home" || die "cannot create $home; set TRANCHE_ENGINES to a folder that can be written"
}

# lock_install makes a second install wait for the first instead of building over it. The lock goes with this process, which may ask for it again.
lock_install() {
  [ -n "${locked:-}" ] && return
  need flock "it is part of util-linux"
  exec 9>"$home/install.lock"
  if ! flock -n 9; then
    say "another install into $home is running; waiting for it"
    flock 9
  fi
  locked=1
}

# make_venv FOLDER [MINOR]: a virtual environment of Python 3.MINOR (default 11) or later.
make_venv() {
  local minor=${2:-11}
  need python3 "Python 3.$minor or later is needed"
  python3 -c "import sys; sys.exit(sys.version_info < (3, $minor))" ||
    die "Python 3.$minor or later is needed, $(command -v python3) is $(python3 -V)"
  [ -x "$1/bin/pip" ] && return
  python3 -m venv "$1" || die "python3 -m venv failed; on Debian and Ubuntu: apt-get install python3-venv"
}

# install_pins NAME CODE [pip flags]: the packages of scripts/NAME/requirements.txt in a virtual environment at $home, unless they are there; CODE has to run
# in it. Changed pins are installed by the next call.
install_pins() {
  local pins code=$2
  pins=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$1/requirements.txt
  shift 2
  cmp -s "$pins" "$home/ready" && return
  lock_install
  cmp -s "$pins" "$home/ready" && return # the install we waited for
  make_venv "$home"
  "$home/bin/pip" install -q --disable-pip-version-check "$@" -r "$pins" >&2
  "$home/bin/python" -c "$code" || die "the packages are installed but cannot be used, see above"
  cp "$pins" "$home/ready"
}

check_port() {
  [[ ${1:-} =~ ^[0-9]+$ ]] && (($1 > 0 && $1 < 65536)) || die "PORT must be a number from 1 to 65535, got \"${1:-}\""
}

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

born() { ps -o lstart= -p "$1" 2>/dev/null || true; }

# launch PORT COMMAND...: start a server as the leader of its own process group and wait until /health answers 200.
launch() {
  local port=$1 log=$home/$1.log wait_s=${TRANCHE_START_SECONDS:-300} pid
  shift
  need curl "it is used to ask the server for /health"
  need setsid "it is part of util-linux"
  port_taken "$port" && die "port $port on 127.0.0.1 is taken; choose another, or: $0 stop $port"
  setsid nohup "$@" >"$log" 2>&1 </dev/null 9>&- &
  pid=$!
  echo "$pid $(born "$pid")" >"$home/$port.pid"
  for ((waited = 0; waited < wait_s * 2; waited++)); do
    if curl -fs -m 2 -o /dev/null "http://127.0.0.1:$port/health"; then
      say "ready at http://127.0.0.1:$port/v1 (process $pid, log $log)"
      return
    fi
    if ! kill -0 "$pid" 2>/dev/null; then
      rm -f "$home/$port.pid"
      tail -n 20 "$log" >&2
      die "the server ended before it was ready; its last lines are above, all of them in $log"
    fi
    sleep 0.5
  done
  halt "$port"
  tail -n 20 "$log" >&2
  die "no 200 from http://127.0.0.1:$port/health within $wait_s s (TRANCHE_START_SECONDS); stopped it; log: $log"
}

# halt PORT: end the server and everything it started; a port where nothing of ours runs is no error.
halt() {
  local file=$home/$1.pid pid since
  [ -e "$file" ] || {
    say "nothing started by this script on port $1"
    return
  }
  read -r pid since <"$file" || true
  rm -f "$file"
  # The number may have gone to a stranger since: only a process with the same start time is ours. A dead leader whose
  # group lives on is ours too, for the system gives no new process the number of a living group.
  if kill -0 "$pid" 2>/dev/null && [ "$(born "$pid")" != "$since" ]; then
    say "process $pid on port $1 is gone"
    return
  fi
  kill -TERM -- "-$pid" 2>/dev/null || return 0
  for _ in {1..40}; do
    kill -0 -- "-$pid" 2>/dev/null || return 0
    sleep 0.25
  done
  say "process group $pid ignored SIGTERM for 10 s; killing it"
  kill -KILL -- "-$pid" 2>/dev/null || true
}
