# Functions for the steps of scripts/test (bash). Each step has a time limit, shows its output while it runs, and leaves no process behind.
#
# lane NAME FUNCTION…     begins these functions one after the other, beside whatever else runs; join_lanes waits for all lanes.
# lanes NUMBER COMMAND…   begins this number of lanes, each of which takes the next of these commands whenever it is free.
# more_commands COMMAND…  adds commands, before all that still wait. A command that calls it is given to lanes as `adding COMMAND`.
#
# Afterwards, $log contains the output of all steps, ${failed[@]} the names of failed steps, ${timings[@]} the duration of each step, and $reasons
# the part of the output of each failed step that says why.

# Time limit of a step in seconds, including the start of an emulated machine.
STEP_LIMIT=${STEP_LIMIT-1800}

work=$(mktemp -d)
log=$work/log
reasons=$work/reasons
touch "$log" "$reasons"
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

# Runs a command with a time limit. The command stays in the foreground, so that Ctrl-C reaches it.
limited() {
  if declare -F "$1" >/dev/null; then "$@"; else timeout --foreground --kill-after=10 "$STEP_LIMIT" "$@"; fi
}

# Ends the processes that still write to a file after their step has ended, and prints their names. They have detached themselves from the
# step.
end_strays() {
  local stream pid strays=()
  # One program looks at all of them, as hundreds of processes may run.
  for stream in $(find /proc/[0-9]*/fd/[12] -maxdepth 0 -lname "$1" 2>/dev/null); do
    pid=${stream#/proc/}
    pid=${pid%%/*}
    [[ " ${strays[*]-} " == *" $pid "* ]] && continue
    strays+=("$pid")
    echo "test: the step has left a process running, which is ended now: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | cut -c 1-200)"
  done
  ((${#strays[@]} == 0)) || kill -KILL "${strays[@]}" 2>/dev/null
}

# Runs a step, keeps its output for the count of tests, and goes on if the step fails. The output goes to a file and `tail` prints the file.
# A pipe would stay open until the last process that holds it has ended, so a detached process could block the script forever.
step() {
  local name=$1 output=$work/step status follower strays began=$SECONDS
  shift
  say "$name"
  : >"$output"
  # This process runs as long as the step. It also ends when this script ends for any reason.
  tail -f --pid=$$ /dev/null &
  marker=$!
  tail -n +1 -f -s 0.1 --pid="$marker" "$output" &
  follower=$!
  CARGO_TERM_COLOR=never limited "$@" >"$output" 2>&1
  status=$?
  # The output of end_strays is not written to the file directly, as this shell would then be one of the processes that write to the file.
  strays=$(end_strays "$output")
  [[ -z $strays ]] || echo "$strays" >>"$output"
  # The follower prints the rest of the file before it ends.
  kill "$marker" 2>/dev/null
  marker=''
  wait "$follower"
  cat "$output" >>"$log"
  ((status == 0)) || { printf '\n%s:\n' "$name"; reason "$output"; } >>"$work/reasons"
  ended "$name" "$status" "$began"
}

# Prints the part of a failed step's output that says why: the programs that failed (scripts/lib/each), Node's lists of failing tests, Rust's panics, or
# else the end. Lines of the whole output are far apart, and a log that keeps only its end would lose them.
reason() {
  {
    grep '^each: exit code [^0]' "$1"
    sed -n '/^✖ failing tests:/,/^each: exit code/p' "$1" | grep -v '^each: '
    grep -A 4 'panicked at' "$1"
    grep -qE '^✖ failing tests:|panicked at' "$1" || tail -n 40 "$1"
  } | head -n 60 | cut -c 1-300
}

# Stores the processor time of all processes that this shell has started and that have ended.
processor_seconds=0
count_processor_seconds() {
  # The second line is that of the children: user 1m2.345s, system 0m1.000s. A shell in a pipe would print its own.
  times >"$work/times"
  processor_seconds=$(sed -n 2p "$work/times" | tr 'ms' '  ' | awk '{ print int($1 * 60 + $2 + $3 * 60 + $4) }')
}

# Records the result of a step, its duration and its processor time, which is that of this lane since the step before.
ended() {
  local before=$processor_seconds
  count_processor_seconds
  timings+=("$(printf '%6d s %6d s   %s%s' $((SECONDS - $3)) $((processor_seconds - before)) "${stage:+$stage: }" "$1")")
  (($2 == 0)) || failed+=("$1 (exit code $2)")
  note_devices "$1"
}

# Notes the step after which /dev/null is not a device for all users any more. Its loss makes steps of other programs fail, far from the cause.
note_devices() {
  local device
  device=$(stat -c '%A %U %t:%T' /dev/null)
  [[ $device == 'crw-rw-rw- root 1:3' ]] || printf '\n/dev/null is "%s" after: %s\n' "$device" "$1" | tee -a "$work/reasons"
}

# Runs cargo for a step that compiles. At a terminal, cargo shows its progress; elsewhere, it prints nothing. The second argument is the
# usual duration.
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

# Begins lanes that share these commands: functions, which may have arguments. Which lane runs a command depends on how long the others take.
lanes() { # lanes NUMBER COMMAND…
  local number
  commands=$work/commands
  printf '%s\n' "${@:2}" >"$commands"
  for ((number = 1; number <= $1; number++)); do lane "$number" take_commands; done
}

# Runs the next command until there is none.
take_commands() {
  local command
  while command=$(next_command || awaited_command); do
    name_stage "${command#adding }"
    if [[ $command == adding\ * ]]; then
      # If this lane ends early, the lock ends with it.
      exec 8>"$commands.more"
      flock 8
    fi
    # shellcheck disable=SC2086 # a function and its arguments
    ${command#adding }
    [[ $command != adding\ * ]] || flock --unlock 8
  done
}

# Prints the first command that the lane that may add some has added. Fails if that lane ends and has added none.
awaited_command() {
  until flock --timeout 1 "$commands.more" true; do
    next_command && return
  done
  next_command
}

more_commands() {
  flock 9
  printf '%s\n' "$@" | cat - "$commands" >"$commands.new" && mv "$commands.new" "$commands"
} 9>"$commands.lock"

# Prints the first of the waiting commands and removes it. The lock keeps two lanes from taking the same one.
next_command() {
  local command
  flock 9 && IFS= read -r command <"$commands" && sed -i 1d "$commands" && echo "$command"
} 9>"$commands.lock"

# Stores the stage to which a function belongs, for the list of durations: run_rust is the stage rust.
name_stage() {
  stage=${1%% *}
  stage=${stage#run_}
}

run_lane() {
  local function
  work=$work/$1
  log=$work/log
  : >"$log"
  failed=()
  timings=()
  processor_seconds=0
  for function in "${@:2}"; do
    name_stage "$function"
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
    [[ ! -f $work/$name/reasons ]] || cat "$work/$name/reasons" >>"$reasons"
  done
  trap - INT
  lane_names=() lane_processes=()
}
