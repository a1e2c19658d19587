# Steps of scripts/test, for bash: each has a limit, is shown while it runs, and leaves no process behind. No step can hold up the run.
#
# lane NAME FUNCTION…  begins these functions one after the other, beside whatever else runs; join_lanes waits for all lanes.
#
# After it: $log is all that was printed by steps, ${failed[@]} names those that failed, ${timings[@]} says how long each took.

# Seconds that a step may take, the start of an emulated machine included.
STEP_LIMIT=${STEP_LIMIT-1800}

work=$(mktemp -d)
log=$work/log
touch "$log"
marker=''
# shellcheck disable=SC2317,SC2329 # called by the trap
tidy_up() {
  [[ -z $marker ]] || kill "$marker" 2>/dev/null
  rm -rf "$work"
}
trap tidy_up EXIT
failed=()
timings=()

say() { printf '\ntest: %s\n' "$*"; }

# A command with a limit: what a step starts is in the foreground, so that Ctrl-C reaches it.
limited() {
  if declare -F "$1" >/dev/null; then "$@"; else timeout --foreground --kill-after=10 "$STEP_LIMIT" "$@"; fi
}

# Ends the processes that still write to a file, and names them. A step has ended then: they have cut themselves loose from it.
end_strays() {
  local stream pid strays=()
  for stream in /proc/[0-9]*/fd/[12]; do
    [[ $(readlink "$stream" 2>/dev/null) == "$1" ]] || continue
    pid=${stream#/proc/}
    pid=${pid%%/*}
    [[ " ${strays[*]-} " == *" $pid "* ]] && continue
    strays+=("$pid")
    echo "test: the step has left a process running, which is ended now: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-200)"
  done
  ((${#strays[@]} == 0)) || kill -KILL "${strays[@]}" 2>/dev/null
}

# Runs a step, keeps what it printed for the count, and goes on where it fails. Its output goes to a file that is followed: a pipe would
# end only when every process that holds it has, and one that cut itself loose would hold up the run without end.
step() {
  local name=$1 output=$work/step status follower strays began=$SECONDS
  shift
  say "$name"
  : >"$output"
  # Stands as long as the step; ends with this script, however that ends.
  tail -f --pid=$$ /dev/null &
  marker=$!
  tail -n +1 -f -s 0.1 --pid="$marker" "$output" &
  follower=$!
  CARGO_TERM_COLOR=never limited "$@" >"$output" 2>&1
  status=$?
  # Not into the file at once: this shell would be one that writes to it.
  strays=$(end_strays "$output")
  [[ -z $strays ]] || echo "$strays" >>"$output"
  # It writes the rest before it ends.
  kill "$marker" 2>/dev/null
  marker=''
  wait "$follower"
  cat "$output" >>"$log"
  ended "$name" "$status" "$began"
}

# Notes how a step has ended, and how long it took.
ended() {
  timings+=("$(printf '%6d s   %s%s' $((SECONDS - $3)) "${stage:+$stage: }" "$1")")
  (($2 == 0)) || failed+=("$1 (exit code $2)")
}

# Runs cargo for a step that compiles: with its own progress at a terminal, without a word elsewhere. It is usually done after so long.
compile() {
  local name=$1 usual=$2 began=$SECONDS
  shift 2
  if [[ -t 2 ]]; then
    say "$name (usually $usual after a change)"
    limited "$@"
    ended "$name" "$?" "$began"
  else
    step "$name (usually $usual after a change)" "$1" "$2" --quiet "${@:3}"
  fi
}

# ---- steps beside each other --------------------------------------------
lane_names=()
lane_processes=()

# Runs functions whose steps need not wait for other lanes. Each line that they print begins with the lane's name.
lane() { # lane NAME FUNCTION…
  local name=$1
  shift
  mkdir "$work/$name"
  run_lane "$name" "$@" > >(sed -u "s/^/$name | /") 2>&1 &
  lane_processes+=($!)
  lane_names+=("$name")
}

run_lane() {
  local function
  work=$work/$1
  log=$work/log
  : >"$log"
  failed=()
  timings=()
  for function in "${@:2}"; do
    # run_rust and node_tests are the stages rust and node.
    stage=${function#run_}
    stage=${stage%_tests}
    "$function"
  done
  printf '%s\n' "${failed[@]}" >"$work/failed"
  printf '%s\n' "${timings[@]}" >"$work/timings"
}

# Waits for the lanes, and takes over what they noted. A lane that has noted nothing has failed.
join_lanes() {
  local name index
  # What runs in the background does not hear Ctrl-C.
  trap 'trap "" TERM; kill -TERM 0; exit 130' INT
  for index in "${!lane_names[@]}"; do
    name=${lane_names[$index]}
    wait "${lane_processes[$index]}"
    if [[ ! -f $work/$name/timings ]]; then
      failed+=("$name (ended before its steps)")
      continue
    fi
    mapfile -t -O "${#failed[@]}" failed < <(grep . "$work/$name/failed")
    mapfile -t -O "${#timings[@]}" timings < <(grep . "$work/$name/timings")
    cat "$work/$name/log" >>"$log"
  done
  trap - INT
  lane_names=() lane_processes=()
}
